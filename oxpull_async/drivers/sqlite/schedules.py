"""Stored schedules: read, and their boundaries moved."""

from __future__ import annotations

from datetime import datetime

from oxpull_async.core.stored_schedules import ScheduleRow, UnreadableRow
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._schedules import schedule_row
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import instant, stored_instant, text

_SQL = load_statements(__package__, "schedules.sql")
_READ_CHANGE = _SQL["read_change"]
_READ_SCHEDULES = _SQL["read_schedules"]
_LOCK_SCHEDULE = _SQL["lock_schedule"]
_MOVE_BOUNDARY = _SQL["move_boundary"]
_TELL_CHANGE = _SQL["tell_change"]


def changed_at() -> Procedure[datetime | None]:
    """What the last writer has told."""
    result = yield _READ_CHANGE()
    return instant(result.rows[0][0]) if result.rows else None


def read() -> Procedure[list[ScheduleRow | UnreadableRow]]:
    """All of them, by id."""
    result = yield _READ_SCHEDULES()
    return [schedule_row(row, stored_instant) for row in result.rows]


def lock(schedule_id: int) -> Procedure[ScheduleRow | UnreadableRow | None]:
    """Within a transaction: the row as it is until the transaction ends."""
    result = yield _LOCK_SCHEDULE(schedule_id=schedule_id)
    return schedule_row(result.rows[0], stored_instant) if result.rows else None


def move_boundary(schedule_id: int, boundary_for: str, now: datetime) -> Procedure[None]:
    """Within a transaction, under the row's lock: let it start now, and tell of it."""
    yield _MOVE_BOUNDARY(schedule_id=schedule_id, boundary_for=boundary_for, now=text(now))
    yield _TELL_CHANGE(now=text(now))
