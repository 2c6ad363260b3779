"""What a store can do to keep workers from starting too much: rate limits, and queues paused or limited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from oxpull_async.core.allotments import Group, Head
from oxpull_async.core.limits import RateLimit
from oxpull_async.ports import Claim, ClaimRequest, Outcome


@dataclass(frozen=True, slots=True)
class Reserved:
    """What was counted before the rows are claimed."""

    given: Mapping[Group, int]
    """How many rows of each group may be claimed."""
    window_ids: Mapping[str, int]
    """The window that it was counted in, for each limit that has windows."""
    closed: Mapping[str, float]
    """Limits that have nothing left now, and in how many seconds they will have; infinity for a limit of nothing."""


@dataclass(frozen=True, slots=True)
class PausedQueue:
    """A queue of which no worker of this library claims a row."""

    queue_name: str
    paused_at: datetime


@dataclass(frozen=True, slots=True)
class LimitedQueue:
    """A queue of which no more than so many rows run at once, over all workers of this library."""

    queue_name: str
    places: int
    running: int
    """How many are RUNNING, by whomever."""
    limited_at: datetime


class LimitStore(Protocol):
    """The part of a store that rate limits need, and queues that are paused or limited."""

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        """As ``Store.claim``."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[UUID]:
        """As ``Store.settle``."""
        ...

    async def peek(self, requests: Mapping[Group, ClaimRequest]) -> Mapping[Group, Sequence[Head]]:
        """The first due rows of each, as far as the request's limit; locks nothing."""
        ...

    async def reserve(self, limits: Sequence[RateLimit], asked: Mapping[Group, int]) -> Reserved:
        """Count starts before they happen, in one transaction and never beyond a limit."""
        ...

    async def give_back(self, limits: Sequence[RateLimit], counts: Mapping[str, int], reserved: Reserved) -> None:
        """Uncount starts that didn't happen, where the window is still the one that they were counted in."""
        ...

    async def draw(self, limit: RateLimit, counts: Mapping[str, int]) -> Mapping[str, tuple[int, float]]:
        """For each key's bucket: how many of the starts asked for it allows, and in how many seconds it allows more."""
        ...

    async def prune_buckets(self, *, limit: int) -> int:
        """Delete up to ``limit`` buckets that have filled, for they are like those that aren't there."""
        ...

    async def pause_queue(self, queue_name: str) -> bool:
        """Whether it wasn't paused before."""
        ...

    async def resume_queue(self, queue_name: str) -> bool:
        """Whether it was paused."""
        ...

    async def paused_queues(self) -> Sequence[PausedQueue]:
        """All of them, by name."""
        ...

    async def limit_queue(self, queue_name: str, places: int | None) -> bool:
        """Whether that changes something; with None, lift the limit."""
        ...

    async def limited_queues(self) -> Sequence[LimitedQueue]:
        """All of them, by name."""
        ...
