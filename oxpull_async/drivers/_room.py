"""What a dialect's room must offer: its pool, and its procedures module by module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from oxpull_async._figures import Counts, LockRow
from oxpull_async._links import Listener
from oxpull_async.core.limits import Bucket, Meter, Window
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.stored_schedules import ScheduleRow, UnreadableRow
from oxpull_async.drivers._joined.session import JoinedSession
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room_batches import BatchProcedures
from oxpull_async.drivers._room_exclusive import ExclusiveProcedures
from oxpull_async.drivers._room_keys import HoldProcedures, RevisionProcedures
from oxpull_async.ports import (
    Attempt,
    Capabilities,
    Claim,
    ClaimRequest,
    NewTask,
    NewUnique,
    Outcome,
    Reaped,
    TakeOver,
    TaskRow,
)
from oxpull_async.ports_joined import JoinedAnswers

T = TypeVar("T")


class Alone(Protocol):
    """A single connection, one procedure at a time. It comes before the pool where they share something."""

    async def read(self, procedure: Procedure[T]) -> T: ...

    async def write(self, procedure: Procedure[T]) -> T: ...


class Pool(Protocol):
    """The library's own connections to one database."""

    @property
    def largest_packet(self) -> int | None:
        """How many bytes a statement may have for the server to take it; None where there is no such bound."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def describe(self) -> Capabilities: ...

    async def migrate(self, *, lean: bool) -> Sequence[str]: ...

    async def read(self, procedure: Procedure[T]) -> T:
        """Run a procedure that only reads, each statement seeing what was committed before it."""
        ...

    async def write(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """Run a procedure that is atomic on its own: one statement, or one that says BEGIN and COMMIT itself.

        ``wait_seconds`` bounds the wait for a competitor where the whole database is what is waited for.
        """
        ...

    async def transact(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """Run a procedure within a transaction: all of it, or nothing."""
        ...

    def alone(self) -> AbstractAsyncContextManager[Alone]:
        """A connection outside of the pool, for whichever event loop calls, in whichever thread."""
        ...

    def begin(self) -> AbstractAsyncContextManager[JoinedSession]:
        """A transaction of our own that lasts as long as the block: commits at its end, rolls back on an error."""
        ...

    async def recheck(self, procedure: Procedure[T]) -> T:
        """Run a reading procedure on a READ COMMITTED connection outside the pool, every wait bounded."""
        ...


class TaskProcedures(Protocol):
    """``tasks.py`` of a room."""

    def insert(self, tasks: Sequence[NewTask]) -> Procedure[None]: ...

    def get(self, task_id: UUID) -> Procedure[TaskRow | None]: ...

    def get_many(self, task_ids: Sequence[UUID]) -> Procedure[list[TaskRow]]: ...

    def list_page(self, after: UUID, limit: int) -> Procedure[list[TaskRow]]: ...


class UniqueProcedures(Protocol):
    """``unique.py`` of a room. ``insert`` is run by ``write``, the others say."""

    def insert(
        self, uniques: Sequence[NewUnique], wait_seconds: float, *, probably_free: bool = False
    ) -> Procedure[list[Attempt]]: ...

    def insert_together(
        self, uniques: Sequence[NewUnique], wait_seconds: float, passes: int
    ) -> Procedure[list[Attempt]]: ...

    def read_holders(self, keys: Sequence[str]) -> Procedure[dict[str, Attempt]]: ...

    def take_over(self, request: TakeOver, wait_seconds: float) -> Procedure[Attempt]: ...


class JoinedProcedures(Protocol):
    """``joined.py`` of a room: each within a savepoint of a caller's transaction."""

    def insert_tasks(self, tasks: Sequence[NewTask]) -> Procedure[None]: ...

    def insert_unique(
        self, uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int, current: bool
    ) -> Procedure[JoinedAnswers]: ...

    def unchanged(self, task_ids: Sequence[UUID]) -> Procedure[bool]: ...

    def uncommitted(self, task_ids: Sequence[UUID]) -> Procedure[bool]:
        """Run outside of the transaction: whether all of these rows are there, and none of them committed."""
        ...

    def isolation_level(self) -> Procedure[str | None]: ...

    def identify(self) -> Procedure[tuple[object, ...]]: ...

    def telling(self, procedure: Procedure[T]) -> Procedure[T]:
        """The same procedure; where there are notifications, the COMMIT tells of its task rows."""
        ...


class ClaimProcedures(Protocol):
    """``claims.py`` of a room."""

    def probe(self, request: ClaimRequest) -> Procedure[bool] | None:
        """Whether ``claim`` would find a row; None where asking first saves nothing."""
        ...

    def claim(self, request: ClaimRequest) -> Procedure[list[Claim]]: ...

    def held(self, worker_id: str) -> Procedure[list[Claim]]: ...

    def next_due(
        self, task_paths: Sequence[str], queues: Sequence[str] | None, now: datetime
    ) -> Procedure[datetime | None]: ...

    def renew(self, claims: Sequence[Claim], worker_id: str, lease_seconds: float) -> Procedure[list[UUID]]: ...

    def release(self, claims: Sequence[Claim], worker_id: str) -> Procedure[list[UUID]]: ...


class OutcomeProcedures(Protocol):
    """``outcomes.py`` of a room."""

    def settle(self, outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]: ...

    def snooze(self, outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]: ...


class MaintenanceProcedures(Protocol):
    """``maintenance.py`` of a room."""

    def reap(self, lease_seconds: float, limit: int, now: datetime) -> Procedure[Reaped]: ...

    def retry(self, task_ids: Sequence[UUID]) -> Procedure[list[UUID]]: ...

    def discard(self, task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]: ...

    def cancel(self, task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]: ...

    def expire_lease(self, task_ids: Sequence[UUID], expired_at: datetime) -> Procedure[list[UUID]]: ...

    def prune_tasks(self, statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Procedure[int]: ...

    def prune_locks(self, limit: int) -> Procedure[int]: ...

    def prune_ticks(self, scheduled_before: datetime, limit: int) -> Procedure[int]: ...


class InspectionProcedures(Protocol):
    """``inspection.py`` of a room: run by ``read``."""

    def probe(self) -> Procedure[None]: ...

    def missing_steps(self) -> Procedure[list[str]]: ...

    def count(self, now: datetime, since: datetime, limit: int) -> Procedure[Counts]: ...

    def list_locks(self, after: str, limit: int) -> Procedure[Sequence[LockRow]]: ...


class TickProcedures(Protocol):
    """``ticks.py`` of a room. Those that write are run within a transaction."""

    def newest(self, keys: Sequence[str], since: datetime) -> Procedure[dict[str, datetime]]: ...

    def insert(self, key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[bool]:
        """Whether the tick wasn't there yet. If it was, the transaction must be rolled back."""
        ...

    def earliest_other(self, key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[datetime | None]:
        """The first tick but this one. None isn't answered to two transactions that insert different ticks."""
        ...

    def assign(self, key: str, scheduled_for: datetime, task_id: UUID) -> Procedure[None]: ...


class ScheduleProcedures(Protocol):
    """``schedules.py`` of a room."""

    def changed_at(self) -> Procedure[datetime | None]: ...

    def read(self) -> Procedure[list[ScheduleRow | UnreadableRow]]: ...

    def lock(self, schedule_id: int) -> Procedure[ScheduleRow | UnreadableRow | None]: ...

    def move_boundary(self, schedule_id: int, boundary_for: str, now: datetime) -> Procedure[None]: ...


class Wakeups(Protocol):
    """Words from process to process, on engines that have them."""

    def listening(
        self, heard: Callable[[str], None], lost: Callable[[], None]
    ) -> AbstractAsyncContextManager[Listener]: ...

    async def notify(self, word: str) -> None: ...


class LimitProcedures(Protocol):
    """``limits.py`` of a room. All but ``peek`` are run within a transaction."""

    def peek(self, request: ClaimRequest) -> Procedure[list[tuple[int, datetime]]]: ...

    def lock_windows(self, names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]:
        """Each with the database's time."""
        ...

    def lock_buckets(self, names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]: ...

    def make_window(self, name: str) -> Procedure[None]: ...

    def make_bucket(self, name: str, tokens: float) -> Procedure[None]: ...

    def write_window(self, name: str, window: Window) -> Procedure[None]: ...

    def write_bucket(self, name: str, bucket: Bucket, full_at: datetime) -> Procedure[None]: ...

    def uncount(self, name: str, window_id: int, count: int) -> Procedure[None]: ...

    def refill(self, name: str, count: int, capacity: int) -> Procedure[None]: ...

    def prune_buckets(self, limit: int) -> Procedure[int]: ...


class QueueProcedures(Protocol):
    """``queues.py`` of a room."""

    def pause(self, queue_name: str) -> Procedure[bool]: ...

    def resume(self, queue_name: str) -> Procedure[bool]: ...

    def paused(self) -> Procedure[list[tuple[str, datetime]]]: ...

    def limit(self, queue_name: str, places: int) -> Procedure[bool]: ...

    def unlimit(self, queue_name: str) -> Procedure[bool]: ...

    def limited(self) -> Procedure[list[tuple[str, int, int, datetime]]]: ...

    def free_places(self, queue_name: str) -> Procedure[int]: ...


@dataclass(frozen=True, slots=True)
class Room:
    """One dialect."""

    engine: str
    pool: Pool
    tasks: TaskProcedures
    unique: UniqueProcedures
    joined: JoinedProcedures
    claims: ClaimProcedures
    outcomes: OutcomeProcedures
    maintenance: MaintenanceProcedures
    inspection: InspectionProcedures
    ticks: TickProcedures
    schedules: ScheduleProcedures
    batches: BatchProcedures
    limits: LimitProcedures
    queues: QueueProcedures
    exclusive: ExclusiveProcedures
    holds: HoldProcedures
    revisions: RevisionProcedures
    insert_chunk: int
    """How many rows one INSERT statement carries."""
    wakeups: Wakeups | None = None
