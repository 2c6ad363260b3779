"""``Batch``: add members, seal it, and see how far it is."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from oxpull_async.batches.access import Access, Outcome
from oxpull_async.batches.additions import Addition, Additions
from oxpull_async.batches.chunks import chunks_of
from oxpull_async.batches.host import BatchHost
from oxpull_async.batches.models import BatchExplanation, BatchMember, BatchProgress
from oxpull_async.batches.reading import explain, read_members, read_progress, read_row
from oxpull_async.batches.watching import wait_for, watch
from oxpull_async.core.durations import Duration
from oxpull_async.core.statuses import BatchStatus, TaskStatus
from oxpull_async.enqueueing.foreign import AnyEnqueueable, Enqueueable, as_task
from oxpull_async.enqueueing.requests import Request, make_request
from oxpull_async.exceptions import BatchMemberExists, BatchNotFound, BatchSealed, NoReconciler
from oxpull_async.ports_batches import BatchClosed, SealedNow
from oxpull_async.results import EnqueueResult, created_result, duplicate_result
from oxpull_async.tasks import Call, P

Calls: TypeAlias = "Iterable[Call | Sequence[Any]] | AsyncIterable[Call | Sequence[Any]]"


class Batch:
    """A batch in the database: made by ``ox.batches.create``, found again by ``ox.batches.get``.

    One that was made or found through ``ox.bind`` works within that
    transaction, but for ``wait`` and ``watch``, which look from outside.
    """

    def __init__(self, host: BatchHost, access: Access, batch_id: UUID, name: str) -> None:
        self.id = batch_id
        self.name = name
        self._host = host
        self._access = access
        self._is_sealed = False

    def __repr__(self) -> str:
        return f"<Batch {self.name!r} {self.id}>"

    async def add(self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Enqueue a task as a member: row and membership together, or neither.

        A unique task that is pending already joins as it is (``created`` is
        False). Raises: BatchSealed, BatchMemberExists if it's a member
        already, BatchNotFound, InvalidArguments, and what an enqueue raises.
        """
        host, plain = self._host, as_task(task)
        unique = host.uniqueness(plain, False)
        at = host.clock.now()
        request = make_request(plain, Call(args, kwargs), settings=host.settings, unique=unique, now=at)
        answer = await self._access.add(self.id, plain, [request], share=plain.options.wait is None)
        ((row, repeated),) = self._outcomes(answer)
        if row is None:
            await self._access.created([request])
            return created_result(request.task, host.reader)
        if repeated:
            raise BatchMemberExists(
                f"{plain.path} ({row.id}) is pending, and a member of this batch already ({self!r}); nothing was added",
                batch_id=self.id,
                task_id=row.id,
            )
        return duplicate_result(row, host.reader)

    async def add_many(self, task: AnyEnqueueable, /, calls: Calls) -> Additions:
        """Enqueue many members; ``calls`` may be any iterable or async iterable, and is read as it's written.

        A call is a tuple of arguments, or ``Call(args, kwargs)``. Each chunk
        of up to 2,000 calls is a transaction of its own (within a bound one, a
        savepoint): if a call is refused, the chunks before it are members, and
        the batch stays open. Returns what became of each call.
        """
        plain = as_task(task)
        unique = self._host.uniqueness(plain, False)
        additions = Additions()
        chunks = chunks_of(plain, calls, settings=self._host.settings, unique=unique, clock=self._host.clock)
        async for requests in chunks:
            answer = await self._access.add(self.id, plain, requests, share=False)
            outcomes = self._outcomes(answer)
            if unique is None:
                additions.extend_created([request.task.id for request in requests])
                await self._access.created(requests)
            else:
                pairs = list(zip(requests, outcomes, strict=True))
                additions.extend(_addition(request, outcome) for request, outcome in pairs)
                await self._access.created([request for request, outcome in pairs if outcome.row is None])
        return additions

    async def seal(self) -> int | None:
        """Close the batch to further members: from here on it completes when all of them are settled.

        Returns the number of members; None where that is counted after the
        caller's commit. Raises: BatchSealed, NoReconciler (the batch stays
        open), BatchNotFound, and in a caller's transaction
        SerializationFailure where its snapshot is out of date.
        """
        if self._host.settings.reconciler is False:
            await self._refuse_to_seal()
        answer = await self._access.seal(self.id, now=self._host.clock.now())
        if not isinstance(answer, SealedNow):
            raise self._closed(answer, "can't be sealed again")
        self._is_sealed = True
        return answer.total

    async def progress(self) -> BatchProgress:
        """How far it is, counted now: one pass over its members."""
        async with self._access.reading() as reads:
            return await read_progress(reads, self.id)

    async def status(self) -> BatchStatus:
        """OPEN, SEALED or COMPLETE, read now: one row."""
        async with self._access.reading() as reads:
            return BatchStatus((await read_row(reads, self.id)).status)

    async def members(
        self, *, status: TaskStatus | str | Collection[TaskStatus | str] | None = None
    ) -> AsyncIterator[BatchMember]:
        """The members with this status or one of these, page by page: ``async for member in batch.members():``."""
        wanted = None if status is None else [str(TaskStatus(each)) for each in _several(status)]
        after: UUID | None = None
        while True:
            async with self._access.reading() as reads:
                page, after = await read_members(reads, self._host.reader, self.id, wanted, after)
            for member in page:
                yield member
            if after is None:
                return

    async def explain(self, *, most: int = 10) -> BatchExplanation:
        """Why it's where it is: up to ``most`` of the members that hold it open, and what each of them waits for."""
        async with self._access.reading() as reads:
            return await explain(reads, self.id, most, self._host.clock.now())

    async def wait(self, timeout: Duration | None = None) -> BatchProgress:
        """The progress once the batch is COMPLETE, which its callbacks aren't part of.

        Raises: TimeoutError, BatchNotFound.
        """
        return await wait_for(self._host, self.id, timeout)

    def watch(self) -> AsyncIterator[BatchProgress]:
        """The progress now and after each change, the last one at COMPLETE: ``async for progress in batch.watch():``.

        A wide batch is counted as seldom as it's costly, a twentieth of the
        time; all who watch it in this process share the counts.
        """
        return watch(self._host, self.id)

    @property
    def is_known_sealed(self) -> bool:
        """Whether this object has sealed it."""
        return self._is_sealed

    async def _refuse_to_seal(self) -> None:
        status = await self.status()
        if status is BatchStatus.OPEN:
            raise NoReconciler(no_reconciler("seal"))
        raise self._closed(BatchClosed(status), "can't be sealed again")

    def _outcomes(self, answer: list[Outcome] | BatchClosed) -> list[Outcome]:
        if isinstance(answer, BatchClosed):
            raise self._closed(answer, "takes no further members")
        return answer

    def _closed(self, closed: BatchClosed, so: str) -> BatchSealed | BatchNotFound:
        if closed.status is None:
            return BatchNotFound(f"there is no batch {self.id}: it was rolled back or deleted; nothing was written")
        return BatchSealed(
            f"{self!r} is {closed.status}, and {so}; nothing was written", batch_id=self.id, status=closed.status
        )


def no_reconciler(deed: str) -> str:
    """The message of ``NoReconciler``."""
    return (
        f"can't {deed} a batch: this Oxpull has reconciler=False, so nothing here would complete it. Leave the setting "
        'out to have ox.running() do it, or say reconciler="external" if other processes do'
    )


def _addition(request: Request, outcome: Outcome) -> Addition:
    row, repeated = outcome
    return Addition(request.task.id if row is None else row.id, row is None, repeated)


def _several(status: TaskStatus | str | Collection[TaskStatus | str]) -> Collection[TaskStatus | str]:
    return [status] if isinstance(status, str) else status
