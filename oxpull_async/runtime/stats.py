"""Figures about the queues, read from the tables alone: they include what other processes and Django workers do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from oxpull_async._contention import retrying
from oxpull_async._figures import Counts, FinishedCount, LockRow, PendingCount
from oxpull_async.clock import Clock
from oxpull_async.core.statuses import PENDING, TaskStatus
from oxpull_async.ports import Store
from oxpull_async.ports_limits import LimitStore
from oxpull_async.runtime.batch_stats import BatchFigures, BatchStats

WINDOW_SECONDS: Final = 300.0
"""How far back throughput and failure rate look."""
LIMIT: Final = 10_000
"""How many rows of each status that isn't pending are counted at most."""

_SEEN_LAST: Final = (TaskStatus.SUCCESSFUL, TaskStatus.DISCARDED)
_OUTCOMES: Final = (TaskStatus.SUCCESSFUL, TaskStatus.FAILED)


class QueueStats(BaseModel):
    """The figures of one queue at one moment."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    queue_name: str
    counts: dict[TaskStatus, int]
    """Rows per status. READY and RUNNING are exact. WAITING, FAILED and LOST are counted up to 10,000 of a status,
    SUCCESSFUL and DISCARDED among the 10,000 rows settled last, over all queues: see ``is_exact``."""
    is_exact: bool
    """Whether no limit was met, so that ``counts`` are all there is."""
    eligible: int = 0
    """READY rows that are due: what a worker could claim now."""
    scheduled: int = 0
    """READY rows that wait for their ``run_after``."""
    oldest_age: float | None = None
    """For how many seconds the oldest eligible row has been due; None without one."""
    throughput: float = 0.0
    """Tasks a minute that succeeded or failed, over the last five minutes; over the latest 10,000 where there were
    more."""
    failure_rate: float | None = None
    """Which share of these failed, 0 to 1; None if there were none."""
    last_claim_at: datetime | None = None
    """When a row of the queue was last claimed, as far as the counted rows tell."""
    paused_at: datetime | None = None
    """Since when the queue is paused; None if it isn't."""
    limit: int | None = None
    """How many of its rows run at once at most; None without a limit."""
    unrunnable: dict[str, int] = Field(default_factory=dict)
    """Eligible rows whose task isn't declared in this process, by task path. Another process may know them."""


class UniqueLock(BaseModel):
    """The lock of a unique key."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    key: str
    task_id: UUID | None
    task_path: str
    queue_name: str
    created_at: datetime
    status: str | None
    """The status of the task row it names; None if that is gone."""

    @property
    def is_held(self) -> bool:
        """Whether the task is pending. Otherwise the next enqueue takes the lock over, and prune deletes it."""
        return self.status in PENDING


class _Store(Store, LimitStore, Protocol):
    """What is asked for figures, and for queues that are paused or limited."""


class Stats:
    """Reads the figures, at a cost that doesn't grow with the rows that are settled."""

    def __init__(
        self,
        store: Callable[[], _Store],
        tasks: Mapping[str, Any],
        clock: Clock,
        batches: Callable[[], BatchFigures],
    ) -> None:
        self._store = store
        self._batches = batches
        self._tasks = tasks
        self._clock = clock

    async def queues(self) -> list[QueueStats]:
        """The figures of every queue that has rows, is paused or limited, by name."""
        store, now = self._store(), self._clock.now()
        since = now - timedelta(seconds=WINDOW_SECONDS)
        counts = await retrying(lambda: store.count(now=now, since=since, limit=LIMIT))
        paused = {queue.queue_name: queue.paused_at for queue in await retrying(store.paused_queues)}
        limits = {queue.queue_name: queue.places for queue in await retrying(store.limited_queues)}
        report = _Report(counts, self._tasks, now, paused, limits)
        return [report.of(name) for name in sorted(report.names)]

    async def queue(self, name: str) -> QueueStats:
        """The figures of one queue, zeros if it has no rows."""
        found = [stats for stats in await self.queues() if stats.queue_name == name]
        return found[0] if found else QueueStats(queue_name=name, counts=dict.fromkeys(TaskStatus, 0), is_exact=True)

    async def batches(self) -> BatchStats:
        """How many batches are under way, which of them are stuck, and whether somebody completes them."""
        return await self._batches().read()

    async def locks(self, *, after: str = "", limit: int = 1000) -> list[UniqueLock]:
        """Unique locks in the order of their keys, from behind the key ``after``."""
        store = self._store()
        rows = await retrying(lambda: store.list_locks(after=after, limit=limit))
        return [_lock(row) for row in rows]


class _Report:
    """Counts, sorted out queue by queue."""

    def __init__(
        self,
        counts: Counts,
        tasks: Mapping[str, Any],
        now: datetime,
        paused: Mapping[str, datetime],
        limits: Mapping[str, int],
    ) -> None:
        self._counts = counts
        self._tasks = tasks
        self._now = now
        self._paused = paused
        self._limits = limits
        self._minutes = _span(counts, now) / 60
        self._is_exact = _is_exact(counts)
        self.names: set[str] = {found.queue_name for found in counts.pending}
        self.names |= {found.queue_name for found in counts.undecided}
        self.names |= {found.queue_name for found in counts.finished}
        self.names |= paused.keys() | limits.keys()

    def of(self, name: str) -> QueueStats:
        """The figures of one queue."""
        pending = [found for found in self._counts.pending if found.queue_name == name]
        finished = [found for found in self._counts.finished if found.queue_name == name]
        eligible = sum(found.due for found in pending)
        ready = sum(found.count for found in pending if found.status == TaskStatus.READY)
        ended = {found.status: found.recent for found in finished if found.status in _OUTCOMES}
        outcomes = sum(ended.values())
        return QueueStats(
            queue_name=name,
            counts=self._by_status(name, pending, finished),
            is_exact=self._is_exact,
            eligible=eligible,
            scheduled=ready - eligible,
            oldest_age=self._oldest_age(pending),
            throughput=outcomes / self._minutes,
            failure_rate=ended.get(TaskStatus.FAILED, 0) / outcomes if outcomes else None,
            last_claim_at=_latest(pending, finished),
            paused_at=self._paused.get(name),
            limit=self._limits.get(name),
            unrunnable=self._unrunnable(pending),
        )

    def _by_status(
        self, name: str, pending: list[PendingCount], finished: list[FinishedCount]
    ) -> dict[TaskStatus, int]:
        counts = dict.fromkeys(TaskStatus, 0)
        numbers = [(found.status, found.count) for found in pending]
        numbers += [(found.status, found.count) for found in self._counts.undecided if found.queue_name == name]
        numbers += [(found.status, found.count) for found in finished if found.status in _SEEN_LAST]
        for status, number in numbers:
            counts[TaskStatus(status)] += number
        return counts

    def _oldest_age(self, pending: list[PendingCount]) -> float | None:
        oldest = min((at for found in pending if (at := found.oldest_due_at)), default=None)
        return None if oldest is None else max(0.0, (self._now - oldest).total_seconds())

    def _unrunnable(self, pending: list[PendingCount]) -> dict[str, int]:
        return {found.task_path: found.due for found in pending if found.due and found.task_path not in self._tasks}


def _latest(pending: list[PendingCount], finished: list[FinishedCount]) -> datetime | None:
    instants = [found.last_attempted_at for found in pending] + [found.last_attempted_at for found in finished]
    return max((instant for instant in instants if instant is not None), default=None)


def _span(counts: Counts, now: datetime) -> float:
    """How many seconds the recent outcomes stand for: fewer than the window where the limit cut it short."""
    if sum(found.count for found in counts.finished) < LIMIT:
        return WINDOW_SECONDS
    earliest = min(found.earliest_finished_at for found in counts.finished)
    return min(WINDOW_SECONDS, max((now - earliest).total_seconds(), 1.0))


def _is_exact(counts: Counts) -> bool:
    numbers = Counter({"finished": sum(found.count for found in counts.finished)})
    for found in counts.undecided:
        numbers[found.status] += found.count
    return max(numbers.values()) < LIMIT


def _lock(row: LockRow) -> UniqueLock:
    return UniqueLock(
        key=row.key,
        task_id=row.task_id,
        task_path=row.task_path,
        queue_name=row.queue_name,
        created_at=row.created_at,
        status=row.status,
    )
