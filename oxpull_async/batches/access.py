"""How a batch reaches its rows: in transactions of our own, or within one of the caller's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.batches import own
from oxpull_async.batches.host import BatchHost
from oxpull_async.enqueueing.joined import Joining, lock_waits_told
from oxpull_async.enqueueing.requests import Request
from oxpull_async.enqueueing.unique import row_of
from oxpull_async.exceptions import DeadlockDetected, SerializationFailure, UniqueViolation
from oxpull_async.ports import Attempt, Held, TaskRow
from oxpull_async.ports_batches import Added, Addition, BatchClosed, BatchReads, NewBatch, SealedNow
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.results import EnqueueResult, created_result
from oxpull_async.runtime.batch_reads import RepeatedReads
from oxpull_async.tasks import AnyTask

_DEADLOCK_ATTEMPTS = 5


class Outcome(NamedTuple):
    """What became of one request: the pending row that has joined in its place, None for a new one."""

    row: TaskRow | None
    repeated: bool
    """The batch had that task already."""


class Access(Protocol):
    """What a batch does through it. Nothing here knows which of the two it is."""

    def reading(self) -> AbstractAsyncContextManager[BatchReads]:
        """For as long as reads that belong together last."""
        ...

    async def create(self, batch: NewBatch) -> None:
        """Insert the batch."""
        ...

    async def add(
        self, batch_id: UUID, task: AnyTask, requests: Sequence[Request], *, share: bool
    ) -> list[Outcome] | BatchClosed:
        """Add members, all or none of these; the requests are all unique, or all plain. ``share`` one statement with
        others who add at the same time.
        """
        ...

    async def created(self, requests: Sequence[Request]) -> None:
        """Tell of new task rows."""
        ...

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        """Seal the batch."""
        ...


class OwnAccess:
    """In transactions of our own."""

    def __init__(self, host: BatchHost) -> None:
        self._host = host

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[BatchReads]:
        yield RepeatedReads(self._host.store().batches)

    async def create(self, batch: NewBatch) -> None:
        tried = False

        async def attempt() -> None:
            nonlocal tried
            again, tried = tried, True
            try:
                await self._host.store().batches.create(batch)
            except UniqueViolation:
                if not again:  # else an earlier try, whose answer was lost, has written it: the id is ours alone
                    raise

        await retrying(attempt)

    async def add(
        self, batch_id: UUID, task: AnyTask, requests: Sequence[Request], *, share: bool
    ) -> list[Outcome] | BatchClosed:
        host, store = self._host, self._host.store()
        wait_seconds = host.settings.unique_wait if task.options.wait is None else task.options.wait
        if requests[0].key is None:
            answer = (
                await host.crowds.of(batch_id).add(requests[0].task)
                if share
                else await own.add(store, _plain(batch_id, requests), [], wait_seconds=wait_seconds)
            )
            return answer if isinstance(answer, BatchClosed) else [Outcome(None, False)] * len(requests)
        first = _first_of_each(requests)
        addition = Addition(batch_id, [], [request.unique for request in first.values()], _instant(requests))
        unheard: list[Added] = []

        async def decide(wait_seconds: float, lock_seconds: float) -> Added | BatchClosed:
            return await own.add(store, addition, unheard, wait_seconds=wait_seconds, lock_seconds=lock_seconds)

        answer = await host.desk().patiently(task.path, wait_seconds, decide)
        return answer if isinstance(answer, BatchClosed) else _outcomes(requests, first, answer)

    async def created(self, requests: Sequence[Request]) -> None:
        reader = self._host.reader
        if requests:
            await self._host.announce(lambda: (created_result(each.task, reader) for each in requests))

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        answer = await own.seal(self._host.store(), batch_id, now=now)
        if isinstance(answer, SealedNow):
            self._host.sealed(batch_id)
        return answer


class JoinedAccess:
    """Within the caller's transaction. ``note_created`` and ``note_sealed`` hear what its commit will bring."""

    def __init__(
        self,
        host: BatchHost,
        join: Callable[[], JoinedStore],
        note_created: Callable[[EnqueueResult], None] | None = None,
        note_sealed: Callable[[UUID], None] | None = None,
    ) -> None:
        self._host = host
        self._join = join
        self._note_created = note_created
        self._note_sealed = note_sealed

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[BatchReads]:
        joined = self._join()
        async with joined.call(several=False):
            yield joined.batches

    async def create(self, batch: NewBatch) -> None:
        joined = self._join()
        async with joined.call(several=False):
            await joined.batches.create(batch)

    async def add(
        self, batch_id: UUID, task: AnyTask, requests: Sequence[Request], *, share: bool
    ) -> list[Outcome] | BatchClosed:
        joined = self._join()
        with _snapshot_told("add to"):
            if requests[0].key is None:
                async with joined.call(several=False):
                    closed = await self._add_plain(joined, batch_id, requests)
                return closed or [Outcome(None, False)] * len(requests)
            with lock_waits_told(task.path):
                try:
                    async with joined.call(several=True):
                        return await self._add_unique(joined, batch_id, task, requests)
                except _Refused as refused:
                    return refused.closed

    async def _add_plain(self, joined: JoinedStore, batch_id: UUID, requests: Sequence[Request]) -> BatchClosed | None:
        tasks = [request.task for request in requests]
        for _ in range(_DEADLOCK_ATTEMPTS - 1):
            try:
                return await joined.batches.add_tasks(batch_id, tasks, added_at=_instant(requests))
            except DeadlockDetected:
                continue  # the savepoint has undone it, and the transaction is usable
        return await joined.batches.add_tasks(batch_id, tasks, added_at=_instant(requests))

    async def _add_unique(
        self, joined: JoinedStore, batch_id: UUID, task: AnyTask, requests: Sequence[Request]
    ) -> list[Outcome]:
        """Locks of keys come before the batch's row, and are tried in their order."""
        first = _first_of_each(requests)
        uniques = [first[key].unique for key in sorted(first)]
        verdicts = await Joining(self._host.store(), joined, uniques, task.options.wait).decide()
        by_key: dict[str, Attempt] = dict(zip((unique.key for unique in uniques), verdicts, strict=True))
        answers = [by_key[key] for key in first]
        ids = sorted({_task_id(first[key], by_key[key]) for key in first})
        repeated = await joined.batches.add_members(batch_id, ids, added_at=_instant(requests))
        if isinstance(repeated, BatchClosed):
            raise _Refused(repeated)
        return _outcomes(requests, first, Added(answers, repeated))

    async def created(self, requests: Sequence[Request]) -> None:
        if self._note_created is not None:
            for each in requests:
                self._note_created(created_result(each.task, self._host.reader))

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        joined = self._join()
        with _snapshot_told("seal"):
            async with joined.call(several=False):
                answer = await joined.batches.seal(batch_id, now=now)
        if self._note_sealed is not None and isinstance(answer, SealedNow):
            self._note_sealed(batch_id)
        return answer


class _Refused(Exception):
    """Has the savepoint around a call undone."""

    def __init__(self, closed: BatchClosed) -> None:
        super().__init__()
        self.closed = closed


@contextmanager
def _snapshot_told(deed: str) -> Iterator[None]:
    """Others have written the batch since the caller's snapshot: say so, in place of the server's words."""
    try:
        yield
    except SerializationFailure as error:
        raise SerializationFailure(
            f"this transaction reads as of its beginning, and others have written the batch since, so it can't {deed} "
            "it. Nothing was written; end the transaction and repeat all of it (at READ COMMITTED this doesn't happen)",
            code=error.code,
        ) from error


def _instant(requests: Sequence[Request]) -> datetime:
    """When they become members, by which a try whose answer was lost is known again."""
    return requests[0].task.enqueued_at


def _plain(batch_id: UUID, requests: Sequence[Request]) -> Addition:
    return Addition(batch_id, [request.task for request in requests], [], _instant(requests))


def _first_of_each(requests: Sequence[Request]) -> dict[str, Request]:
    """By key, in the order of the calls."""
    first: dict[str, Request] = {}
    for request in requests:
        first.setdefault(request.unique.key, request)
    return first


def _outcomes(requests: Sequence[Request], first: dict[str, Request], added: Added) -> list[Outcome]:
    """A key's first call adds a member, its repeats find it."""
    answers = dict(zip(first, added.answers, strict=True))
    outcomes = []
    for request in requests:
        winner, answer = first[request.unique.key], answers[request.unique.key]
        if isinstance(answer, Held):
            outcomes.append(Outcome(answer.row, winner is not request or answer.task_id in added.repeated))
        else:
            outcomes.append(Outcome(None, False) if winner is request else Outcome(row_of(winner.task), True))
    return outcomes


def _task_id(request: Request, answer: Attempt) -> UUID:
    if isinstance(answer, Held) and answer.task_id is not None:
        return answer.task_id
    return request.task.id
