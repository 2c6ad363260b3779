"""``ox.schedules``: what is scheduled, when it comes next, and a pass by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from oxpull_async.clock import Clock
from oxpull_async.core.schedules import find_zone
from oxpull_async.ports import NewTask, NewUnique
from oxpull_async.ports_schedules import ScheduleStore
from oxpull_async.results import EnqueueResult, ResultSource, created_result
from oxpull_async.runtime.scheduler import Scheduler
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.stored_schedules import StoredSchedules
from oxpull_async.schedules import Schedule
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call

_LONGEST_BACKOFF: Final = 5.0
_LOOK_BACK: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A schedule and its ticks around now. Instants are in UTC."""

    name: str
    task_path: str
    timing: str
    next_tick: datetime
    last_tick: datetime | None
    """The newest in the log, by any process, within the last year."""
    stored: bool
    """Whether it is a row of the database, not declared in code."""


class ScheduledHost(Protocol):
    """What the schedules need of their ``Oxpull``."""

    @property
    def settings(self) -> Settings:
        """What is set."""
        ...

    @property
    def store(self) -> ScheduleStore:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def declared_schedules(self) -> Mapping[str, Schedule]:
        """The declared schedules, by name."""
        ...

    @property
    def schedulable_tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that stored schedules may name, by key."""
        ...


class Schedules:
    """The schedules of one ``Oxpull``, by name; iterating gives those that code declares."""

    def __init__(
        self,
        ox: ScheduledHost,
        make_row: Callable[[AnyTask, Call, datetime], NewTask | NewUnique],
        announce: Callable[[Sequence[EnqueueResult]], Awaitable[None]],
        reader: ResultSource,
    ) -> None:
        zone = find_zone(ox.settings.schedule_timezone)
        self.clock: Clock = ox.clock
        self.declared: Mapping[str, Schedule] = ox.declared_schedules
        self.stored: StoredSchedules = StoredSchedules(lambda: ox.store, ox.schedulable_tasks, zone)
        self._ox = ox
        self._make_row = make_row
        self._announce = announce
        self._reader = reader
        self._by_hand = Scheduler(self)

    def __iter__(self) -> Iterator[Schedule]:
        return iter(list(self.declared.values()))

    def __len__(self) -> int:
        return len(self.declared)

    def __getitem__(self, name: str) -> Schedule:
        return self.declared[name]

    def service(self) -> Service:
        """Background work that fires what is due until it is stopped."""
        return Service("scheduler", Scheduler(self).turn, longest_backoff=_LONGEST_BACKOFF)

    async def dispatch(self) -> int:
        """One pass by hand: fire the latest tick of each schedule that is due; returns how many tasks that enqueued.

        Safe beside any number of processes that do the same. Raises: NotOpen, StoreError.
        """
        return await self._by_hand.dispatch()

    async def upcoming(self) -> list[Upcoming]:
        """Every schedule that runs here, the soonest first. Raises: NotOpen, StoreError."""
        now = self.clock.now()
        rows = await self.stored.current(now)
        keys = [*self.declared, *(found.row.key for found in rows)]
        last = await self.store.newest_ticks(keys, since=now - _LOOK_BACK)
        declared = [
            Upcoming(s.name, s.task.path, str(s.timing), s.next_tick(now), last.get(s.name), stored=False) for s in self
        ]
        stored = [
            Upcoming(s.row.name, s.task.path, str(s.timing), s.timing.next(now), last.get(s.row.key), stored=True)
            for s in rows
        ]
        return sorted([*declared, *stored], key=lambda found: (found.next_tick, found.name))

    # For the scheduler

    @property
    def store(self) -> ScheduleStore:
        """The open store. Raises: NotOpen."""
        return self._ox.store

    def row(self, task: AnyTask, call: Call, now: datetime) -> NewTask | NewUnique:
        """The row to be written for a call, with its key if the task is unique."""
        return self._make_row(task, call, now)

    async def announce(self, task: NewTask) -> None:
        """Tell of a row that was committed."""
        await self._announce([created_result(task, self._reader)])
