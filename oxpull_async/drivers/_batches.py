"""The ports of batches, implemented once over any dialect's room: which procedure runs, and in what transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from oxpull_async.core.batches import Tally, judge
from oxpull_async.drivers._additions import Additions
from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._room import Pool, Room
from oxpull_async.ports import NewTask, TaskRow
from oxpull_async.ports_batches import (
    Added,
    Addition,
    BatchClosed,
    BatchCount,
    BatchRow,
    Completed,
    Completion,
    CompletionAnswer,
    Leadership,
    MemberRow,
    NewBatch,
    NotSealed,
    Scan,
    SealedBatch,
    SealedNow,
    StillPending,
)

_BEFORE_ALL = datetime(1971, 1, 1, tzinfo=UTC)
_NO_ID = UUID(int=0)
_LOCK_SECONDS = 10.0
"""How long a seal waits for additions in transactions that others keep open."""


class SqlBatchStore:
    """A ``ports_batches.BatchStore``."""

    def __init__(self, room: Room, pool: Callable[[], Pool]) -> None:
        self._room = room
        self._batches = room.batches
        self._get_pool = pool
        self._additions = Additions(room, pool)

    @property
    def _pool(self) -> Pool:
        return self._get_pool()

    async def create(self, batch: NewBatch) -> None:
        await self._pool.write(self._batches.create(batch))

    async def get(self, batch_id: UUID) -> BatchRow | None:
        return await self._pool.read(self._batches.get(batch_id))

    async def newest(self, status: str, *, limit: int) -> Sequence[BatchRow]:
        return await self._pool.read(self._batches.newest(status, limit))

    async def count(self, status: str, *, limit: int) -> BatchCount:
        return await self._pool.read(self._batches.count(status, limit))

    async def add(
        self, addition: Addition, *, wait_seconds: float, passes: int, unheard: list[Added] | None = None
    ) -> Added | BatchClosed:
        tries = [] if unheard is None else unheard
        return await self._additions.add(addition, tries, wait_seconds=wait_seconds, passes=passes)

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        procedure = self._batches.seal(batch_id, now, _LOCK_SECONDS)
        answer = await self._pool.transact(procedure, wait_seconds=_LOCK_SECONDS)
        return answer if isinstance(answer, BatchClosed) else SealedNow(answer)

    async def tally(self, batch_id: UUID, *, width: int | None) -> Tally:
        return await self._pool.read(self._batches.tally(batch_id, width))

    async def members(
        self, batch_id: UUID, *, statuses: Sequence[str] | None, after: UUID | None, limit: int
    ) -> Sequence[MemberRow]:
        return await self._pool.read(self._batches.members(batch_id, statuses, after, limit))

    async def scan(self, batch_id: UUID, *, below: UUID | None, limit: int) -> Scan:
        return await self._pool.read(self._batches.scan(batch_id, below, limit))

    async def highest_pending(self, batch_id: UUID) -> UUID | None:
        return await self._pool.read(self._batches.highest_pending(batch_id))

    async def task(self, task_id: UUID) -> TaskRow | None:
        return await self._pool.read(self._room.tasks.get(task_id))

    async def sealed(self, *, after: SealedBatch | None, limit: int) -> Sequence[SealedBatch]:
        instant, batch_id = (_BEFORE_ALL, _NO_ID) if after is None else (after.created_at, after.id)
        return await self._pool.read(self._batches.sealed(instant, batch_id, limit))

    async def get_sealed(self, batch_id: UUID) -> SealedBatch | None:
        return await self._pool.read(self._batches.get_sealed(batch_id))

    async def pending(self, task_ids: Sequence[UUID]) -> Sequence[UUID]:
        return await self._pool.read(self._batches.pending(task_ids)) if task_ids else []

    async def count_members(self, batch_id: UUID) -> None:
        await self._pool.transact(self._batches.count_members(batch_id))

    async def complete(self, completion: Completion) -> CompletionAnswer:
        try:
            return await self._pool.transact(self._complete(completion))
        except _Pending as pending:
            return StillPending(pending.task_id)

    def _complete(self, completion: Completion) -> Procedure[CompletionAnswer]:
        batch_id = completion.batch_id
        marked, total = yield from self._batches.mark_complete(batch_id, completion.completed_at)
        if not marked:
            return NotSealed()
        tally, highest = yield from self._batches.tally_with_highest(batch_id, total)
        ending = judge(tally, total)
        if ending is None:
            assert highest is not None
            raise _Pending(highest)
        on_complete = completion.on_complete
        on_success = completion.on_success if ending.is_success else None
        for callback in (on_complete, on_success):
            if callback is not None:
                yield from self._room.tasks.insert([callback])
        yield from self._batches.write_ending(batch_id, ending, _id_of(on_complete), _id_of(on_success))
        return Completed(ending)

    async def lead(self, role: str, *, holder: str, lease_seconds: float) -> Leadership:
        return await self._pool.write(self._batches.lead(role, holder, lease_seconds))

    async def stand_down(self, role: str, *, holder: str) -> None:
        await self._pool.write(self._batches.stand_down(role, holder))

    async def last_led(self, role_prefix: str) -> datetime | None:
        return await self._pool.read(self._batches.last_led(role_prefix))

    async def find_prunable(self, *, completed_before: datetime, limit: int) -> Sequence[UUID]:
        return await self._pool.read(self._batches.find_prunable(completed_before, limit))

    async def prune_members(self, batch_id: UUID, *, limit: int) -> int:
        return await self._pool.transact(self._batches.prune_members(batch_id, limit))


class _Pending(Undecided):
    """Has a completion rolled back, since a member is pending after all."""

    def __init__(self, task_id: UUID) -> None:
        super().__init__("a member is pending")
        self.task_id = task_id


def _id_of(callback: NewTask | None) -> UUID | None:
    return None if callback is None else callback.id
