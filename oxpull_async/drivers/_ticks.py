"""Firing a schedule: the tick row first, so that its unique pair decides before anything is enqueued."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from oxpull_async.core.stored_schedules import Boundary, ScheduleRow
from oxpull_async.core.uniqueness import MAX_PASSES
from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._room import Room
from oxpull_async.exceptions import LockNotAvailable
from oxpull_async.ports import Held, Inserted, NewUnique, TaskRow
from oxpull_async.ports_schedules import Anchored, Fired, NewTick, TickOutcome

WAIT_SECONDS = 2.0
"""How long a unique task's enqueue waits for a competitor; the tick is tried again soon."""


class Refused(Undecided):
    """The stored schedule doesn't want the tick."""


def fire(room: Room, tick: NewTick) -> Procedure[TickOutcome]:
    """Within a transaction. Raises: Undecided where the tick is another's."""
    if not (yield from room.ticks.insert(tick.key, tick.scheduled_for, tick.created_at)):
        raise Undecided("the tick is in the log already")
    if tick.anchors:
        earliest = yield from room.ticks.earliest_other(tick.key, tick.scheduled_for, tick.created_at)
        if earliest is None:
            return Anchored()
        if tick.scheduled_for < earliest:
            raise Undecided("the tick lies before the schedule's first one")
    holder = yield from _enqueue(room, tick)
    yield from room.ticks.assign(tick.key, tick.scheduled_for, tick.task.id if holder is None else holder.id)
    return Fired(tick.task, holder)


def fire_stored(
    room: Room, schedule_id: int, admit: Callable[[ScheduleRow | None], NewTick | None]
) -> Procedure[TickOutcome]:
    """Within a transaction, under the schedule's row lock. Raises: Refused, Undecided."""
    row = yield from room.schedules.lock(schedule_id)
    tick = admit(row if isinstance(row, ScheduleRow) else None)
    if tick is None:
        raise Refused("the stored schedule has changed")
    return (yield from fire(room, tick))


def move_boundary(room: Room, schedule_id: int, observed: Boundary, now: datetime) -> Procedure[bool]:
    """Within a transaction, under the schedule's row lock."""
    row = yield from room.schedules.lock(schedule_id)
    if not isinstance(row, ScheduleRow) or row.boundary != observed:
        return False
    yield from room.schedules.move_boundary(schedule_id, row.digest, now)
    return True


def _enqueue(room: Room, tick: NewTick) -> Procedure[TaskRow | None]:
    """The pending row that stands for a unique task; None where the new row is written."""
    if tick.unique_key is None:
        yield from room.tasks.insert([tick.task])
        return None
    unique = NewUnique(tick.unique_key, tick.task)
    (answer,) = yield from room.unique.insert_together([unique], WAIT_SECONDS, MAX_PASSES)
    match answer:
        case Inserted():
            return None
        case Held(row=row) if row is not None:
            return row
        case _:
            raise LockNotAvailable("the unique key of a scheduled task changed hands each time it was looked at")
