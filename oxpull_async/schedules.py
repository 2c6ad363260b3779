"""Schedules: tasks that are enqueued by the clock, declared beside the tasks themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oxpull_async.core.arguments import prepare_arguments
from oxpull_async.core.durations import Duration
from oxpull_async.core.names import MAX_NAME_LENGTH
from oxpull_async.core.schedules import Timing, make_timing
from oxpull_async.core.storable import text_complaint
from oxpull_async.core.stored_schedules import KEY_PREFIX
from oxpull_async.exceptions import InvalidSchedule
from oxpull_async.telemetry import log

if TYPE_CHECKING:
    from oxpull_async.tasks import AnyTask

T = TypeVar("T", bound="AnyTask")
_NO_KWARGS: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task with its arguments, and the times at which it is enqueued. Made by ``ox.schedule``."""

    name: str
    """Under which all processes, Django's too, log its ticks: one name is one schedule."""
    task: AnyTask
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    timing: Timing

    def latest_tick(self, at: datetime) -> datetime:
        """The latest tick at or before this instant, which must have a time zone; in UTC."""
        return self.timing.latest(at)

    def next_tick(self, at: datetime) -> datetime:
        """The earliest tick after this instant, which must have a time zone; in UTC."""
        return self.timing.next(at)


class ScheduleMaker:
    """Declares schedules: the part that ``Oxpull`` and ``TaskRouter`` share."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._schedulable: dict[str, AnyTask] = {}

    def schedule(
        self,
        task: AnyTask,
        /,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        phase: Duration = 0,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _NO_KWARGS,
        timezone: str | tzinfo = "UTC",
    ) -> Schedule:
        """Enqueue ``task`` at the minutes of a cron expression, or ``every`` so often, on a zone's wall clock.

        ``every`` counts from 1970, shifted by ``phase``, so no restart moves
        it. ``name`` (by default the task's path) is what the log of ticks
        knows the schedule by: keep it, or its history begins anew. For other
        options, give ``task.using(queue_name=…)``.

        Raises: InvalidSchedule, InvalidArguments.
        """
        timing = make_timing(cron=cron, every=every, phase=phase, timezone=timezone)
        path = getattr(task, "path", None)
        if path is None:
            raise InvalidSchedule(f"only a task can be scheduled, and {task!r} is none; declare it with @ox.task")
        schedule = Schedule(_checked_name(path if name is None else name), task, tuple(args), dict(kwargs), timing)
        _check_uniqueness(schedule)
        _check_arguments(schedule)
        self._refuse_taken([schedule])
        self._schedules[schedule.name] = schedule
        if task.options.unique is not None:
            log(
                logging.WARNING,
                "unique_task_scheduled",
                f"the schedule {schedule.name!r} has a unique task: a tick that comes while {path} is still pending "
                "enqueues nothing",
                schedule=schedule.name,
            )
        return schedule

    def scheduled(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        phase: Duration = 0,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = _NO_KWARGS,
        timezone: str | tzinfo = "UTC",
    ) -> Callable[[T], T]:
        """``schedule`` as a decorator, above ``@ox.task``; the task stays what it was."""

        def decorate(task: T) -> T:
            self.schedule(
                task, cron=cron, every=every, phase=phase, name=name, args=args, kwargs=kwargs, timezone=timezone
            )
            return task

        return decorate

    def schedulable(self, key: str) -> Callable[[T], T]:
        """Let schedules that are stored as rows run this task: they name it by ``key``, never by its path.

        A decorator, above ``@ox.task``. Once a task is schedulable, the
        stored schedules are read and dispatched. Raises: InvalidSchedule.
        """
        if not isinstance(key, str) or not 1 <= len(key) <= MAX_NAME_LENGTH:
            raise InvalidSchedule(f"a key for stored schedules has 1 to {MAX_NAME_LENGTH} characters, unlike {key!r}")

        def decorate(task: T) -> T:
            if self._schedulable.setdefault(key, task) is not task:
                raise InvalidSchedule(f"the key {key!r} is taken by {self._schedulable[key].path}")
            return task

        return decorate

    @property
    def declared_schedules(self) -> Mapping[str, Schedule]:
        """The declared schedules, by name."""
        return self._schedules

    @property
    def schedulable_tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that stored schedules may name, by key."""
        return self._schedulable

    def _take_schedules(self, other: ScheduleMaker) -> None:
        """Have in common with ``other`` what each of them has declared, and will declare."""
        if other._schedules is self._schedules:
            return
        self._refuse_taken(other._schedules.values())
        for key, task in other._schedulable.items():
            self.schedulable(key)(task)
        self._schedules.update(other._schedules)
        other._schedules, other._schedulable = self._schedules, self._schedulable

    def _refuse_taken(self, schedules: Iterable[Schedule]) -> None:
        """Some databases compare names without regard to case, and the log of ticks with them."""
        taken = {name.casefold(): name for name in self._schedules}
        for schedule in schedules:
            if (rival := taken.get(schedule.name.casefold())) is not None:
                raise InvalidSchedule(
                    f"the schedule name {schedule.name!r} is taken by {rival!r}; give it another name="
                )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise InvalidSchedule(f"a schedule's name has 1 to {MAX_NAME_LENGTH} characters, unlike {name!r}; give name=")
    if name.startswith(KEY_PREFIX):
        raise InvalidSchedule(f"the schedule name {name!r} begins with {KEY_PREFIX!r}, as those of stored schedules do")
    if (complaint := text_complaint(name)) is not None:
        raise InvalidSchedule(f"the schedule name {name!r}: {complaint}")
    return name


def _check_arguments(schedule: Schedule) -> None:
    schedule.task.check_arguments(schedule.args, schedule.kwargs)
    prepare_arguments(schedule.task.path, schedule.args, dict(schedule.kwargs))


def _check_uniqueness(schedule: Schedule) -> None:
    unique = schedule.task.options.unique
    if unique is not None and unique.terms is not None:
        raise InvalidSchedule(
            f"{schedule.task.path} is unique with hold= or window=, which no schedule can enqueue; "
            "schedule a task that enqueues it"
        )
