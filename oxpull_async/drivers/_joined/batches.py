"""The ports of batches inside a caller's transaction: each operation within a savepoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.batches import Tally
from oxpull_async.drivers._joined.session import JoinedSession
from oxpull_async.drivers._room import Room
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.ports import NewTask, TaskRow
from oxpull_async.ports_batches import BatchClosed, BatchRow, MemberRow, NewBatch, Scan, SealedNow


class JoinedSqlBatchStore:
    """A ``ports_batches.JoinedBatchStore``."""

    def __init__(self, session: JoinedSession, room: Room) -> None:
        self._session = session
        self._batches = room.batches
        self._tasks = room.tasks

    async def create(self, batch: NewBatch) -> None:
        await self._session.run(guarded(self._batches.create(batch)))

    async def get(self, batch_id: UUID) -> BatchRow | None:
        return await self._session.run(guarded(self._batches.get(batch_id)))

    async def add_tasks(self, batch_id: UUID, tasks: Sequence[NewTask], *, added_at: datetime) -> BatchClosed | None:
        procedure = self._batches.add_tasks_inside(batch_id, tasks, added_at, None)
        return await self._session.run(guarded(procedure))

    async def add_members(
        self, batch_id: UUID, task_ids: Sequence[UUID], *, added_at: datetime
    ) -> BatchClosed | frozenset[UUID]:
        procedure = self._batches.add_members(batch_id, task_ids, added_at, None)
        return await self._session.run(guarded(procedure))

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        answer = await self._session.run(guarded(self._batches.seal_inside(batch_id, now)))
        return answer if isinstance(answer, BatchClosed) else SealedNow(answer)

    async def tally(self, batch_id: UUID, *, width: int | None) -> Tally:
        return await self._session.run(guarded(self._batches.tally(batch_id, width)))

    async def members(
        self, batch_id: UUID, *, statuses: Sequence[str] | None, after: UUID | None, limit: int
    ) -> Sequence[MemberRow]:
        return await self._session.run(guarded(self._batches.members(batch_id, statuses, after, limit)))

    async def scan(self, batch_id: UUID, *, below: UUID | None, limit: int) -> Scan:
        return await self._session.run(guarded(self._batches.scan(batch_id, below, limit)))

    async def highest_pending(self, batch_id: UUID) -> UUID | None:
        return await self._session.run(guarded(self._batches.highest_pending(batch_id)))

    async def task(self, task_id: UUID) -> TaskRow | None:
        return await self._session.run(guarded(self._tasks.get(task_id)))
