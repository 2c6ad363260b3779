"""``ports_limits.LimitStore`` over any dialect's room, but for the claim itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oxpull_async.core.allotments import Group, Head
from oxpull_async.core.limits import RateLimit
from oxpull_async.drivers import _limits
from oxpull_async.drivers._room import Room
from oxpull_async.ports import ClaimRequest
from oxpull_async.ports_limits import PausedQueue, Reserved


class LimitOperations:
    """The part of the store that keeps workers from starting too much."""

    _room: Room

    async def peek(self, requests: Mapping[Group, ClaimRequest]) -> Mapping[Group, Sequence[Head]]:
        return await self._room.pool.read(_limits.peek(self._room, requests))

    async def reserve(self, limits: Sequence[RateLimit], asked: Mapping[Group, int]) -> Reserved:
        return await self._room.pool.transact(_limits.reserve(self._room, limits, asked))

    async def give_back(self, limits: Sequence[RateLimit], counts: Mapping[str, int], reserved: Reserved) -> None:
        if counts:
            await self._room.pool.transact(_limits.give_back(self._room, limits, counts, reserved))

    async def draw(self, limit: RateLimit, counts: Mapping[str, int]) -> Mapping[str, tuple[int, float]]:
        return await self._room.pool.transact(_limits.draw(self._room, limit, counts)) if counts else {}

    async def prune_buckets(self, *, limit: int) -> int:
        return await self._room.pool.transact(self._room.limits.prune_buckets(limit))

    async def pause_queue(self, queue_name: str) -> bool:
        return await self._room.pool.write(self._room.queues.pause(queue_name))

    async def resume_queue(self, queue_name: str) -> bool:
        return await self._room.pool.write(self._room.queues.resume(queue_name))

    async def paused_queues(self) -> Sequence[PausedQueue]:
        return [PausedQueue(*row) for row in await self._room.pool.read(self._room.queues.paused())]
