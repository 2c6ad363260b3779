"""Reads of batches that are repeated where a connection broke, since repeating a read does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.core.batches import Tally
from oxpull_async.ports import TaskRow
from oxpull_async.ports_batches import BatchReads, BatchRow, MemberRow, Scan


class RepeatedReads:
    """A ``BatchReads`` over another one."""

    def __init__(self, reads: BatchReads) -> None:
        self._reads = reads

    async def get(self, batch_id: UUID) -> BatchRow | None:
        return await retrying(lambda: self._reads.get(batch_id))

    async def tally(self, batch_id: UUID, *, width: int | None) -> Tally:
        return await retrying(lambda: self._reads.tally(batch_id, width=width))

    async def members(
        self, batch_id: UUID, *, statuses: Sequence[str] | None, after: UUID | None, limit: int
    ) -> Sequence[MemberRow]:
        return await retrying(lambda: self._reads.members(batch_id, statuses=statuses, after=after, limit=limit))

    async def scan(self, batch_id: UUID, *, below: UUID | None, limit: int) -> Scan:
        return await retrying(lambda: self._reads.scan(batch_id, below=below, limit=limit))

    async def highest_pending(self, batch_id: UUID) -> UUID | None:
        return await retrying(lambda: self._reads.highest_pending(batch_id))

    async def task(self, task_id: UUID) -> TaskRow | None:
        return await retrying(lambda: self._reads.task(task_id))
