"""What a store can do for schedules: the log of ticks, and the schedules that are kept as rows.

Each tick fires in one transaction: the tick's row, and the task row that it
enqueues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from oxpull_async.core.stored_schedules import Boundary, ScheduleRow, UnreadableRow
from oxpull_async.ports import NewTask, TaskRow


@dataclass(frozen=True, slots=True)
class NewTick:
    """One firing of a schedule, to be logged together with the task row that it enqueues.

    ``unique_key`` is that of a unique task. With ``anchors``, the first tick
    that a schedule is ever seen at is logged without a task.
    """

    key: str
    scheduled_for: datetime
    created_at: datetime
    task: NewTask
    unique_key: str | None
    anchors: bool


@dataclass(frozen=True, slots=True)
class Fired:
    """The tick is logged with its task: the new one, or with ``holder`` the pending row of a unique one."""

    task: NewTask
    holder: TaskRow | None = None


@dataclass(frozen=True, slots=True)
class Anchored:
    """The schedule was seen for the first time: its tick is logged, and nothing enqueued."""


@dataclass(frozen=True, slots=True)
class TickTaken:
    """The tick is in the log already, or lies before all that is there: nothing was written."""


@dataclass(frozen=True, slots=True)
class TickRefused:
    """The stored schedule doesn't want this tick any more: nothing was written."""


TickOutcome: TypeAlias = Fired | Anchored | TickTaken | TickRefused


class ScheduleStore(Protocol):
    """The part of a store that the scheduler needs."""

    async def newest_ticks(self, keys: Sequence[str], *, since: datetime) -> Mapping[str, datetime]:
        """The newest tick in the log of each schedule that has one at or after ``since``."""
        ...

    async def fire(self, tick: NewTick) -> TickOutcome:
        """Log a tick and enqueue its task in one transaction; of many that try the same tick one succeeds."""
        ...

    async def fire_stored(self, schedule_id: int, admit: Callable[[ScheduleRow | None], NewTick | None]) -> TickOutcome:
        """The same for a stored schedule: ``admit`` is asked with the row as it is now, under its lock."""
        ...

    async def schedules_changed_at(self) -> datetime | None:
        """What those who change stored schedules have last written to tell of it."""
        ...

    async def stored_schedules(self) -> Sequence[ScheduleRow | UnreadableRow]:
        """Every stored schedule, the disabled ones too."""
        ...

    async def move_boundary(self, schedule_id: int, observed: Boundary, *, now: datetime) -> bool:
        """Let a retimed schedule start now, unless its boundary isn't the observed one any more."""
        ...
