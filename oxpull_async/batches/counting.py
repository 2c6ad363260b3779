"""Counts of members, shared by all in this process who watch the same batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from oxpull_async.batches.models import BatchProgress

_SHARE = 20
"""A batch is being counted for a twentieth of the time at most, however wide it is."""
_SHORTEST_SECONDS = 0.2


@dataclass(slots=True)
class _Count:
    progress: BatchProgress
    good_until: float


class Counting:
    """The latest count of each batch that is watched. A count that is under way is waited for, not repeated."""

    def __init__(self) -> None:
        self._latest: dict[UUID, _Count] = {}
        self._under_way: dict[UUID, asyncio.Future[None]] = {}
        self._watchers: dict[UUID, int] = {}

    def watch(self, batch_id: UUID) -> None:
        """Keep the latest count from here on."""
        self._watchers[batch_id] = self._watchers.get(batch_id, 0) + 1

    def unwatch(self, batch_id: UUID) -> None:
        """Forget it with the last watcher."""
        self._watchers[batch_id] -= 1
        if not self._watchers[batch_id]:
            del self._watchers[batch_id]
            self._latest.pop(batch_id, None)

    def seconds_left(self, batch_id: UUID) -> float:
        """For how long the latest count is good enough."""
        latest = self._latest.get(batch_id)
        return 0.0 if latest is None else max(latest.good_until - time.monotonic(), 0.0)

    async def progress(self, batch_id: UUID, count: Callable[[], Awaitable[BatchProgress]]) -> BatchProgress:
        """The latest count if it's good enough, else a new one."""
        while (under_way := self._under_way.get(batch_id)) is not None:
            await asyncio.wait([under_way])
        if self.seconds_left(batch_id):
            return self._latest[batch_id].progress
        return await self.fresh(batch_id, count)

    async def fresh(self, batch_id: UUID, count: Callable[[], Awaitable[BatchProgress]]) -> BatchProgress:
        """A new count, for all who watch."""
        under_way = self._under_way[batch_id] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        try:
            progress = await count()
            ended = time.monotonic()
            good = max(_SHARE * (ended - began), _SHORTEST_SECONDS)
            self._latest[batch_id] = _Count(progress, ended + good)
            return progress
        finally:
            if self._under_way.get(batch_id) is under_way:
                del self._under_way[batch_id]
            under_way.set_result(None)
