"""Rows of stored schedules, which people write: what can't be read is told of one row, and spares the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from oxpull_async.core.stored_schedules import MOST_GENERATIONS, Boundary, ScheduleRow, UnreadableRow
from oxpull_async.drivers._procedure import Row


def schedule_row(row: Row, instant: Callable[[Any], datetime]) -> ScheduleRow | UnreadableRow:
    """The columns of the fragment ``schedule_row``, in its order; ``instant`` reads one that isn't NULL."""
    id_, name, task_key, trigger, cron, every, phase, arguments, enabled, *rest = row
    boundary_for, start_time, generation, end_time, deadline = rest
    try:
        for text in (name, task_key, trigger, cron, arguments, boundary_for):
            _expect(text, str)
        for number in (every, phase, generation, deadline):
            _expect(number, int, none=number is every or number is deadline)
        if enabled not in (0, 1):
            raise ValueError(f"enabled is {enabled!r}")
        if generation >= MOST_GENERATIONS:
            raise ValueError("boundary_generation is the most that its column holds")
        return ScheduleRow(
            id=id_,
            name=name,
            task_key=task_key,
            trigger=trigger,
            cron=cron,
            every_seconds=every,
            phase_seconds=phase,
            arguments=arguments,
            enabled=bool(enabled),
            boundary=Boundary(boundary_for, instant(start_time), generation),
            end_time=None if end_time is None else instant(end_time),
            starting_deadline_seconds=deadline,
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        return UnreadableRow(id_, str(error))


def _expect(value: object, kind: type, *, none: bool = False) -> None:
    if not isinstance(value, kind) and not (none and value is None):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
