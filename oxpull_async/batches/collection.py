"""``ox.batches``: make batches, find them again, and complete them by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any
from uuid import UUID

from oxpull_async._ids import new_id
from oxpull_async.batches.access import Access, OwnAccess
from oxpull_async.batches.batch import Batch, no_reconciler
from oxpull_async.batches.callbacks import Callback, stored_callback
from oxpull_async.batches.host import BatchHost
from oxpull_async.batches.models import BatchInfo
from oxpull_async.batches.reading import read_row
from oxpull_async.core.batches import MAX_NAME_LENGTH
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.core.storable import text_complaint
from oxpull_async.exceptions import BatchNotFound, InvalidArguments, NoReconciler
from oxpull_async.ports_batches import BatchRow, NewBatch
from oxpull_async.runtime.batch_stats import StuckBatch
from oxpull_async.runtime.reconciler import Reconciler


class NewBatchHandle:
    """What ``create`` returns: await it for the batch, or enter it to have the batch sealed at the block's end.

    A block that raises leaves the batch open, and what was added stays.
    """

    def __init__(self, host: BatchHost, access: Access, new: NewBatch) -> None:
        self._host = host
        self._access = access
        self._new = new
        self._batch: Batch | None = None

    def __await__(self) -> Generator[Any, Any, Batch]:
        return self._create().__await__()

    async def __aenter__(self) -> Batch:
        self._batch = await self._create()
        return self._batch

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        batch = self._batch
        if error is None and batch is not None and not batch.is_known_sealed:
            await batch.seal()

    async def _create(self) -> Batch:
        await self._access.create(self._new)
        return Batch(self._host, self._access, self._new.id, self._new.name)


class BatchMaker:
    """Makes batches, and finds them again."""

    def __init__(self, host: BatchHost, access: Access) -> None:
        self._host = host
        self._access = access

    def create(
        self,
        name: str,
        *,
        on_complete: Callback = None,
        on_complete_args: Sequence[Any] | None = None,
        on_complete_kwargs: Mapping[str, Any] | None = None,
        on_success: Callback = None,
        on_success_args: Sequence[Any] | None = None,
        on_success_kwargs: Mapping[str, Any] | None = None,
        pass_batch: bool = False,
    ) -> NewBatchHandle:
        """A new OPEN batch: ``batch = await ox.batches.create(…)``, or ``async with ox.batches.create(…) as batch:``.

        ``on_complete`` is enqueued once every member is settled or gone,
        ``on_success`` besides if all are SUCCESSFUL. Each is a plain task, or
        its path; ``pass_batch`` gives it the batch's id as ``batch_id``, a str.
        Raises: NoReconciler, InvalidTask, InvalidArguments.
        """
        if self._host.settings.reconciler is False:
            raise NoReconciler(no_reconciler("create"))
        _check_name(name)
        batch_id = new_id()
        extra = {"batch_id": str(batch_id)} if pass_batch else {}
        known: dict[str, Any] = {"tasks": self._host.tasks(), "settings": self._host.settings}
        complete = stored_callback("on_complete", on_complete, on_complete_args, on_complete_kwargs, extra, **known)
        success = stored_callback("on_success", on_success, on_success_args, on_success_kwargs, extra, **known)
        new = NewBatch(
            id=batch_id,
            name=name,
            on_complete_path=complete.path,
            on_complete_args=complete.args,
            on_complete_kwargs=complete.kwargs,
            on_success_path=success.path,
            on_success_args=success.args,
            on_success_kwargs=success.kwargs,
            created_at=self._host.clock.now(),
        )
        return NewBatchHandle(self._host, self._access, new)

    async def get(self, batch_id: UUID | str) -> Batch:
        """The batch with this id. Raises: BatchNotFound, for a malformed id too."""
        try:
            parsed = batch_id if isinstance(batch_id, UUID) else UUID(str(batch_id))
        except ValueError as error:
            raise BatchNotFound(f"{batch_id!r} is not a batch id: it must be a UUID") from error
        async with self._access.reading() as reads:
            row = await read_row(reads, parsed)
        return Batch(self._host, self._access, row.id, row.name)


class Batches(BatchMaker):
    """``ox.batches``."""

    def __init__(self, host: BatchHost, reconciler: Reconciler, hear_sealed: Callable[[UUID], None]) -> None:
        super().__init__(host, OwnAccess(host))
        self._reconciler = reconciler
        self._hear_sealed = hear_sealed

    def hear_sealed(self, batch_id: UUID) -> None:
        """A hint that this batch was sealed: it is looked at without waiting for a sweep."""
        self._hear_sealed(batch_id)

    async def latest(self, *, status: BatchStatus | str | None = None, limit: int = 100) -> list[BatchInfo]:
        """The newest batches, of this status or of all."""
        wanted = list(BatchStatus) if status is None else [BatchStatus(status)]
        store = self._host.store().batches
        rows = [row for each in wanted for row in await store.newest(each, limit=limit)]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        return [_info(row) for row in rows[:limit]]

    async def reconcile(self) -> int:
        """One pass over all sealed batches, whoever leads; returns how many it has completed.

        What it has learnt of batches that still wait is kept for the next
        pass. Raises: NoReconciler.
        """
        if self._host.settings.reconciler is False:
            raise NoReconciler(no_reconciler("complete"))
        return await self._reconciler.reconcile()

    async def stuck(self) -> list[StuckBatch]:
        """Sealed batches that no member holds open, and that this process can't complete, with the reason."""
        found = await self._reconciler.stuck()
        return [StuckBatch(id=batch.id, created_at=batch.created_at, reason=reason) for batch, reason in found]

    async def last_led(self) -> datetime | None:
        """Until when a process has last taken it upon itself to complete batches; None: none ever has."""
        return await self._reconciler.last_led()


def _info(row: BatchRow) -> BatchInfo:
    return BatchInfo(
        id=row.id,
        name=row.name,
        status=BatchStatus(row.status),
        created_at=row.created_at,
        sealed_at=row.sealed_at,
        completed_at=row.completed_at,
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArguments(f"a batch's name must be a str, not {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidArguments(f"a batch's name has at most {MAX_NAME_LENGTH} characters, not {len(name)}")
    if complaint := text_complaint(name):
        raise InvalidArguments(f"the batch's name {name!r}: {complaint}")
