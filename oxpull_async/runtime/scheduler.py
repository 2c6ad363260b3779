"""Enqueues what is due by the clock: any number of processes may do it, and each tick fires once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.schedules import Timing
from oxpull_async.core.stored_schedules import ScheduleRow
from oxpull_async.exceptions import ConnectionLost, NotOpen, PoolTimeout
from oxpull_async.ports import NewTask, NewUnique
from oxpull_async.ports_schedules import Anchored, Fired, NewTick, ScheduleStore, TickOutcome, TickRefused
from oxpull_async.runtime.stored_schedules import StoredSchedule, StoredSchedules
from oxpull_async.schedules import Schedule
from oxpull_async.tasks import AnyTask, Call
from oxpull_async.telemetry import log

_LONGEST_PAUSE: Final = 30.0
_LOOK_AT_ROWS_EVERY: Final = 1.0
_RETRY_AFTER: Final = 1.0
_JUST_AFTER: Final = 0.001
"""A pause may end a moment before the tick by the wall's clock."""


class Scheduling(Protocol):
    """What the scheduler needs of its Oxpull."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def store(self) -> ScheduleStore:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def declared(self) -> Mapping[str, Schedule]:
        """The schedules of the code, by name."""
        ...

    @property
    def stored(self) -> StoredSchedules:
        """The schedules that are kept as rows."""
        ...

    def row(self, task: AnyTask, call: Call, now: datetime) -> NewTask | NewUnique:
        """The row to be written for a call, with its key if the task is unique."""
        ...

    async def announce(self, task: NewTask) -> None:
        """Tell of a row that was committed."""
        ...


@dataclass(frozen=True, slots=True)
class _Due:
    """A tick that may have to fire."""

    key: str
    tick: datetime
    fire: Callable[[], Awaitable[TickOutcome]]
    is_too_late: bool = False
    """Past the starting deadline of a stored schedule."""


class Scheduler:
    """One pass per turn. ``clock`` tells the time, in tests one that is made up."""

    def __init__(self, scheduling: Scheduling, *, clock: Callable[[], datetime] | None = None) -> None:
        self._scheduling = scheduling
        self._clock = clock or scheduling.clock.now
        self._done: dict[str, datetime] = {}
        """The last tick of each schedule that is known to be over with: it isn't asked for again."""
        self._failing: dict[str, str] = {}

    async def turn(self) -> float:
        """Fire what is due; returns the pause until something else may be."""
        await self.dispatch()
        return self._pause()

    async def dispatch(self) -> int:
        """Fire the latest tick of each schedule that is due and hasn't fired; returns how many tasks that enqueued.

        Older ticks that were missed are passed over. A schedule that is seen
        for the first time ever is anchored: its first task comes with the
        next tick. What keeps one schedule from firing doesn't keep others.
        """
        now = self._clock()
        stored = await self._scheduling.stored.current(now)
        due = [tick for tick in self._due(stored, now) if self._done.get(tick.key) != tick.tick]
        if not due:
            return 0
        newest = await self._scheduling.store.newest_ticks(
            [tick.key for tick in due], since=min(tick.tick for tick in due)
        )
        fired = 0
        for tick in due:
            last = newest.get(tick.key)
            if last is not None and tick.tick <= last <= now:
                self._done[tick.key] = tick.tick
            elif tick.is_too_late:
                self._drop(tick)
            else:
                fired += await self._fire(tick)
        return fired

    def _due(self, stored: Iterable[StoredSchedule], now: datetime) -> Iterable[_Due]:
        for schedule in list(self._scheduling.declared.values()):
            tick = self._tick(schedule.name, schedule.timing, now)
            if tick is not None:
                yield _Due(schedule.name, tick, partial(self._fire_declared, schedule, tick, now))
        for found in stored:
            row, tick = found.row, self._tick(found.row.key, found.timing, now)
            if tick is not None and row.encloses(tick):
                yield _Due(row.key, tick, partial(self._fire_stored, row.id, tick, now), row.is_too_late(tick, now))

    def _tick(self, key: str, timing: Timing, now: datetime) -> datetime | None:
        try:
            return timing.due(now)
        except Exception as error:  # arithmetic beyond the calendar, in a row that people write
            self._note_failure(key, error)
            return None

    def _drop(self, due: _Due) -> None:
        self._done[due.key] = due.tick
        log(
            logging.WARNING,
            "schedule_tick_dropped",
            f"the tick {due.tick:%Y-%m-%d %H:%M:%S} UTC of the schedule {due.key!r} is past its starting deadline",
            schedule=due.key,
        )

    async def _fire(self, due: _Due) -> int:
        try:
            outcome = await retrying(due.fire)
        except (ConnectionLost, PoolTimeout, NotOpen):
            raise  # no schedule's fault: the whole pass is tried again
        except Exception as error:
            self._note_failure(due.key, error)
            return 0
        self._note_success(due.key)
        if not isinstance(outcome, TickRefused):
            self._done[due.key] = due.tick
        if isinstance(outcome, Anchored):
            log(
                logging.INFO,
                "schedule_anchored",
                f"the schedule {due.key!r} is new: its first task comes with its next tick",
                schedule=due.key,
            )
        if not isinstance(outcome, Fired) or outcome.holder is not None:
            return 0
        await self._scheduling.announce(outcome.task)
        return 1

    async def _fire_declared(self, schedule: Schedule, tick: datetime, now: datetime) -> TickOutcome:
        new = self._new_tick(
            schedule.name, tick, now, schedule.task, Call(schedule.args, schedule.kwargs), anchors=True
        )
        return await self._scheduling.store.fire(new)

    async def _fire_stored(self, schedule_id: int, tick: datetime, now: datetime) -> TickOutcome:
        def admit(row: ScheduleRow | None) -> NewTick | None:
            """Decided from the row as it is now: everything about it may have changed since it was read."""
            current = self._scheduling.stored.wanted(row, schedule_id)
            if current is None or current.timing.due(now) != tick or not current.row.encloses(tick):
                return None
            if current.row.is_too_late(tick, self._clock()):
                return None
            call = Call((), current.kwargs)
            return self._new_tick(current.row.key, tick, now, current.task, call, anchors=False)

        return await self._scheduling.store.fire_stored(schedule_id, admit)

    def _new_tick(
        self, key: str, tick: datetime, now: datetime, task: AnyTask, call: Call, *, anchors: bool
    ) -> NewTick:
        row = self._scheduling.row(task, call, now)
        if isinstance(row, NewUnique):
            return NewTick(key, tick, now, row.task, row.key, anchors)
        return NewTick(key, tick, now, row, None, anchors)

    def _pause(self) -> float:
        now = self._clock()
        pauses = [_LONGEST_PAUSE]
        if self._failing:
            pauses.append(_RETRY_AFTER)
        if self._scheduling.stored.is_wanted:
            pauses.append(_LOOK_AT_ROWS_EVERY)
        pauses += [_seconds_until(schedule.timing, now) for schedule in self._scheduling.declared.values()]
        return min(pauses)

    def _note_failure(self, key: str, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"
        if self._failing.get(key) != words:
            log(
                logging.ERROR,
                "schedule_failed",
                f"the schedule {key!r} can't fire, and will try again: {error}",
                error=error,
                schedule=key,
            )
        self._failing[key] = words

    def _note_success(self, key: str) -> None:
        if self._failing.pop(key, None) is not None:
            log(logging.WARNING, "schedule_recovered", f"the schedule {key!r} fires again", schedule=key)


def _seconds_until(timing: Timing, now: datetime) -> float:
    try:
        return (timing.next(now) - now) / timedelta(seconds=1) + _JUST_AFTER
    except (ArithmeticError, AssertionError):  # beyond the calendar
        return _LONGEST_PAUSE
