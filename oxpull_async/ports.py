"""What a store can do, operation by operation: the seam between the library and its databases.

Ids are ``uuid.UUID``, instants are aware UTC datetimes, JSON travels as text.
Every operation that writes is one transaction of the store's own, READ
COMMITTED where the engine has levels, and all or nothing. A lost race is part
of the answer; a ``StoreError`` means that nothing was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from oxpull_async._figures import Inspection
from oxpull_async._links import Links
from oxpull_async.core.settlements import Settlement
from oxpull_async.core.statuses import TaskStatus

if TYPE_CHECKING:
    from oxpull_async.ports_batches import BatchStore
    from oxpull_async.ports_exclusive import ExclusiveStore
    from oxpull_async.ports_joined import JoinedStore
    from oxpull_async.ports_keys import KeyStore


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine has, and what it can't do."""

    engine: str
    server_version: str
    skip_locked: bool
    """Claimers pass over each other's rows instead of waiting for them."""
    notifications: bool
    """The server can wake a waiting worker."""
    own_snapshot_levels: bool
    """A caller's transaction may read from a snapshot older than what others have committed."""
    rechecks: bool
    """What others have committed since can then be asked over another connection; elsewhere nobody else writes."""
    fine_lock_timeout: bool
    """A wait for a lock can be bounded in milliseconds; elsewhere the bound is whole seconds."""


class NewTask(NamedTuple):
    """A task row to be inserted as READY. ``args`` and ``kwargs`` are JSON text.

    A tuple, as all rows are that are made one by one: a frozen dataclass takes five times as long to make.
    """

    id: UUID
    task_path: str
    args: str
    kwargs: str
    queue_name: str
    priority: int
    takes_context: bool
    backend_name: str
    run_after: datetime | None
    max_attempts: int
    enqueued_at: datetime


class NewUnique(NamedTuple):
    """A task row to be inserted only if no pending one holds ``key``."""

    key: str
    task: NewTask


class TaskRow(NamedTuple):
    """A task row as it is stored. The five JSON columns are texts."""

    id: UUID
    task_path: str
    args: str
    kwargs: str
    queue_name: str
    priority: int
    takes_context: bool
    backend_name: str
    status: str
    run_after: datetime | None
    attempts: int
    max_attempts: int
    return_value: str | None
    errors: str
    worker_ids: str
    enqueued_at: datetime
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None
    locked_by: str | None
    locked_at: datetime | None
    lease_expires_at: datetime | None
    lease_epoch: int


@dataclass(frozen=True, slots=True)
class Inserted:
    """The key was free: lock and task row are written."""


@dataclass(frozen=True, slots=True)
class Held:
    """The key's lock names ``task_id``. ``row`` is that task row, None where it's gone.

    ``held_until``: the end of the key's window, where it has one.
    """

    task_id: UUID | None
    row: TaskRow | None
    held_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unseen:
    """A competitor has the key, and its lock can't be seen yet (or no longer): look again."""


Attempt: TypeAlias = Inserted | Held | Unseen


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A lock to be pointed at a new task row, provided that it still names ``stale_task_id``."""

    unique: NewUnique
    stale_task_id: UUID | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Up to ``limit`` rows of the given task paths (and queues, unless None) for one worker."""

    worker_id: str
    task_paths: Sequence[str]
    queues: Sequence[str] | None
    limit: int
    lease_seconds: float
    now: datetime
    passed_queues: Sequence[str] = ()
    """Queues whose rows are left alone, those apart that are paused anyway."""
    limited_queue: str = ""
    """The only queue with a limit whose rows are claimed, as far as the limit allows."""


class Claim(NamedTuple):
    """A row granted to a worker: what it needs to run it and to prove its right to settle it.

    A tuple, because a worker makes tens of thousands of these a second.
    """

    id: UUID
    task_path: str
    args: str
    kwargs: str
    queue_name: str
    priority: int
    takes_context: bool
    backend_name: str
    attempts: int
    max_attempts: int
    errors: str
    worker_ids: str
    lease_epoch: int
    enqueued_at: datetime
    lease_expires_at: datetime
    run_after: datetime | None
    started_at: datetime
    last_attempted_at: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt ended with, fenced by the epoch under which it was granted.

    ``errors`` is the whole list as JSON text: what the claim had, plus this
    attempt's record. ``run_after`` is set where the row goes back to READY. A
    unique task's lock is deleted with a success. ``takes_row_away``: the
    task's code still runs, and the epoch moves on so that it can't write.
    """

    id: UUID
    lease_epoch: int
    settlement: Settlement
    errors: str
    run_after: datetime | None
    finished_at: datetime
    takes_row_away: bool = False
    may_rerun: bool = False
    """A rerun may be waiting for the end of this task."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one reaping pass did."""

    requeued: Sequence[UUID]
    lost: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one pruning pass deleted."""

    tasks: int
    locks: int
    ticks: int = 0
    batches: int = 0
    buckets: int = 0
    """Of rate limits, those that have filled."""
    keys: int = 0
    """Of exclusive execution, long unused."""


class Store(Inspection, Links, Protocol):
    """A database with the queue's tables in it."""

    @property
    def batches(self) -> BatchStore:
        """What it can do about batches."""
        ...

    @property
    def exclusive(self) -> ExclusiveStore:
        """What it can do about exclusive execution."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Known once the store is open."""
        ...

    @property
    def keys(self) -> KeyStore:
        """What it can do about unique keys beyond plain locks."""
        ...

    async def open(self) -> None:
        """Connect. Raises: ConnectionLost, WrongDatabase. Needs no tables."""
        ...

    async def close(self) -> None:
        """Let go of every connection, within a bound."""
        ...

    async def migrate(self, *, lean: bool = False) -> Sequence[str]:
        """Create what is missing; safe beside other processes doing the same. Returns the new steps' names."""
        ...

    async def insert_tasks(self, tasks: Sequence[NewTask]) -> None:
        """Insert all rows or none. Raises: UniqueViolation where an id exists already."""
        ...

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, probably_free: bool = False
    ) -> Sequence[Attempt]:
        """Try every key once, in key order, and answer in the order given. The keys must differ.

        Keys that are ``probably_free`` may be tried without a look at their
        holders; one that isn't free after all may be ``Unseen``.

        Waits at most about ``wait_seconds`` for a competitor's open
        transaction, then raises LockNotAvailable with nothing written. On
        some engines one lost key leaves the others inserted, on none is a
        lock without its task row or the other way about.
        """
        ...

    async def insert_unique_together(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, passes: int
    ) -> Sequence[Attempt]:
        """Decide every key in one transaction: each answer is ``Inserted`` or a pending ``Held``.

        Stale holders are taken over on the way. An ``Unseen`` among the
        answers means that ``passes`` were not enough: nothing was written.
        """
        ...

    async def read_holder(self, key: str) -> Attempt:
        """What the key's lock says now: ``Held``, or ``Unseen`` where there is no lock."""
        ...

    async def take_over(self, take_over: TakeOver, *, wait_seconds: float) -> Attempt:
        """Point a stale lock at the new task row, by compare-and-swap on the task id it named.

        The old holder's row is locked and read again first: ``Held`` with its
        row if it's pending again, ``Unseen`` if the lock has moved meanwhile.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[JoinedStore]:
        """A transaction that lasts as long as the block: commits at its end, rolls back on an error."""
        ...

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        """The task row as last committed."""
        ...

    async def get_tasks(self, task_ids: Sequence[UUID]) -> Sequence[TaskRow]:
        """Those of the task rows that exist, in any order."""
        ...

    async def list_tasks(self, *, after: UUID | None, limit: int) -> Sequence[TaskRow]:
        """A page of all task rows in the order of their ids, from the one that follows ``after``."""
        ...

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        """Grant READY rows that are due, by priority then age; each grant spends an attempt."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[UUID]:
        """Write outcomes whose epoch still holds on a RUNNING or LOST row; returns the ids that landed.

        A row that another transaction keeps locked is passed over. A snooze
        lands on a RUNNING row alone, and refunds its attempt.
        """
        ...

    async def held(self, worker_id: str) -> Sequence[Claim]:
        """The rows that run under this worker's name, with a lease that isn't over."""
        ...

    async def next_due(
        self, *, task_paths: Sequence[str], queues: Sequence[str] | None, after: datetime
    ) -> datetime | None:
        """The earliest ``run_after`` that is later, of READY rows of these paths (and queues, unless None).

        Where rows of other queues fall due before that, by the hundred, it may be an instant of one of those.
        """
        ...

    async def release(self, claims: Sequence[Claim], *, worker_id: str) -> Sequence[UUID]:
        """Give claimed rows back unrun, their attempt refunded; returns the ids that landed."""
        ...

    async def renew(self, claims: Sequence[Claim], *, worker_id: str, lease_seconds: float) -> Sequence[UUID]:
        """Extend the leases still held by this worker at their epochs; returns the ids extended."""
        ...

    async def reap(self, *, lease_seconds: float, limit: int, now: datetime) -> Reaped:
        """Put rows of expired leases back, or mark them LOST where no attempt is left."""
        ...

    async def retry(self, task_ids: Sequence[UUID]) -> Sequence[UUID]:
        """Grant FAILED and LOST rows one further attempt; returns the ids that changed."""
        ...

    async def discard(self, task_ids: Sequence[UUID], *, now: datetime) -> Sequence[UUID]:
        """Settle READY, WAITING, FAILED and LOST rows as DISCARDED; returns the ids that changed."""
        ...

    async def cancel(self, task_ids: Sequence[UUID], *, now: datetime) -> Sequence[UUID]:
        """Settle READY, WAITING and RUNNING rows as DISCARDED, the last fenced away from their worker."""
        ...

    async def expire_lease(self, task_ids: Sequence[UUID], *, expired_at: datetime) -> Sequence[UUID]:
        """Date the leases of RUNNING rows back, for the next reaper to find; returns the ids that changed."""
        ...

    async def prune(self, *, statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Pruned:
        """Delete up to ``limit`` each of settled rows, stale locks, and ticks but a schedule's newest."""
        ...

    async def recheck(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        """What the locks of these keys say now, asked over a connection outside the pool.

        READ COMMITTED, so that it sees what a caller's snapshot can't, and
        bounded in every wait. Raises: StoreError where it can't answer.
        """
        ...
