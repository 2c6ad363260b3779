"""What a store can do about exclusive execution, operation by operation. The terms are those of ``ports``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from oxpull_async.ports import Claim, ClaimRequest


class OnConflict(Enum):
    """What becomes of a task whose key has no free place."""

    WAIT = "wait"
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Who wants a place of a key, of which there are ``capacity``. ``name`` is the key for people."""

    key: str
    name: str
    owner: UUID
    capacity: int
    lease_seconds: float


class HeldPlace(NamedTuple):
    """A place that is held: ``token`` is its fencing token, which grows with each acquisition of the key."""

    key: str
    token: int
    owner: UUID
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who has an exclusive key, or a place of one that has several."""

    name: str
    """What the key is called, as far as its first 255 characters."""
    fence: int
    """Its fencing token; for a place that is kept, the number in line."""
    owner: UUID
    """The id of the task row; one of its own for a block."""
    is_reserved: bool
    """Nobody has it yet: it's kept for who is first in line."""
    until: datetime
    """When the lease is over, unless it's renewed."""
    is_over: bool
    """The lease is over: the next who comes takes the place."""
    task_path: str | None
    """None for a block, and for a task that doesn't run."""
    worker_id: str | None
    since: datetime | None
    """When the task's attempt began."""
    waiting: int
    """How many wait for the key."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is no place yet; the caller stands in line. In so many seconds there may be one for sure."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Freed:
    """Who has a place kept from now on: callers, who are to be told, and tasks, whose rows are due."""

    callers: Sequence[UUID] = ()
    tasks: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of leases. One that is in neither list was being decided about, and is to be asked for again."""

    extended: Sequence[HeldPlace] = ()
    lost: Sequence[HeldPlace] = ()


class Candidate(NamedTuple):
    """A row that could be claimed. The JSON columns are texts."""

    id: UUID
    task_path: str
    args: str
    kwargs: str
    errors: str


@dataclass(frozen=True, slots=True)
class TaskWanted:
    """What a task needs to run; with SKIP, ``errors`` is the row's list as JSON text, with the reason added."""

    wanted: Wanted
    on_conflict: OnConflict
    errors: str = ""


KeysOf: TypeAlias = Callable[[Sequence[Candidate]], Sequence[TaskWanted]]
"""Says of each candidate what it needs. Called within the claiming transaction, perhaps in another thread."""


@dataclass(frozen=True, slots=True)
class ExclusiveClaims:
    """What became of the candidates of one claim."""

    granted: Sequence[tuple[Claim, HeldPlace]] = ()
    refused: Sequence[Claim] = ()
    """RUNNING without a place, to be settled as failed attempts."""
    skipped: Sequence[UUID] = ()
    freed: Freed = Freed()
    has_more: bool = False
    """As many rows were due as were looked at, so there may be others."""


class ExclusiveStore(Protocol):
    """Mutexes and semaphores, by key. Every decision about a key is made under the lock of its row."""

    async def acquire(self, wanted: Wanted, *, patience_seconds: float | None) -> tuple[HeldPlace | Waiting, Freed]:
        """Take a place, or stand in line for so long; with None, don't."""
        ...

    async def has_place(self, key: str, owner: UUID, capacity: int) -> bool:
        """Whether it's worthwhile to ask again: a place is kept for this caller, or one may be free."""
        ...

    async def release(self, places: Sequence[HeldPlace]) -> tuple[int, Freed]:
        """Give places back, by owner and token; returns how many of them were still held."""
        ...

    async def abandon(self, key: str, owner: UUID) -> Freed:
        """Give back whatever the caller has: a place, one kept for it, or its place in line."""
        ...

    async def renew(self, places: Sequence[HeldPlace]) -> Renewal:
        """Extend leases, by owner and token; one that is over too, as long as nobody has the place instead."""
        ...

    async def claim(self, request: ClaimRequest, keys_of: KeysOf, *, look: int) -> ExclusiveClaims:
        """Grant up to ``request.limit`` rows together with places of their keys, of up to ``look`` that are due.

        A row that has to wait stays READY, and only its ``run_after`` moves:
        to when there may be a place for sure, or until one is kept for it.
        """
        ...

    async def holders(self, *, key: str | None, limit: int) -> Sequence[KeyHolder]:
        """Who has this key, or who has any, by name."""
        ...

    async def forget_idle(self, *, idle_seconds: float, limit: int) -> int:
        """Delete what is remembered of keys that were last used so long ago; returns how many."""
        ...
