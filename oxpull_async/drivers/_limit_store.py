"""``ports_limits.LimitStore`` over any dialect's room, but for the claim itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from oxpull_async.core.allotments import Group, Head
from oxpull_async.core.limits import RateLimit
from oxpull_async.drivers import _limits
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room import QueueProcedures, Room
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_limits import LimitedQueue, PausedQueue, Reserved

T = TypeVar("T")


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

    async def limit_queue(self, queue_name: str, places: int | None) -> bool:
        queues = self._room.queues
        procedure = queues.unlimit(queue_name) if places is None else queues.limit(queue_name, places)
        return await self._room.pool.write(procedure)

    async def limited_queues(self) -> Sequence[LimitedQueue]:
        return [LimitedQueue(*row) for row in await self._room.pool.read(self._room.queues.limited())]

    async def _claim_limited(self, request: ClaimRequest) -> list[Claim]:
        """What is due is looked for first, without a lock."""
        if not await self._room.pool.read(self._room.limits.peek(replace(request, limit=1))):
            return []
        return await self._room.pool.transact(within_places(self._room.queues, request, self._grant, []))

    def _grant(self, request: ClaimRequest) -> Procedure[list[Claim]]:
        candidates = yield from self._room.exclusive.lock_due(request, request.limit)
        if not candidates:
            return []
        claims = yield from self._room.exclusive.grant(request, [candidate.id for candidate in candidates], [])
        return sorted(claims, key=lambda claim: (-claim.priority, claim.enqueued_at, claim.id))


def within_places(
    queues: QueueProcedures, request: ClaimRequest, claim: Callable[[ClaimRequest], Procedure[T]], nothing: T
) -> Procedure[T]:
    """A claim in a transaction that takes no more of a limited queue's rows than there are free places for."""
    if not request.limited_queue:
        return (yield from claim(request))
    free = yield from queues.free_places(request.limited_queue)
    return (yield from claim(replace(request, limit=min(request.limit, free)))) if free else nothing
