"""The log of ticks: a unique pair of schedule and instant lets each of them fire once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements

_SQL = load_statements(__package__, "ticks.sql")
_NEWEST_TICKS = _SQL["newest_ticks"]
_INSERT_TICK = _SQL["insert_tick"]
_EARLIEST_OTHER = _SQL["earliest_other"]
_DELETE_TICK = _SQL["delete_tick"]
_ASSIGN_TASK = _SQL["assign_task"]

_LATCH = datetime(1900, 1, 1, tzinfo=UTC)


def newest(keys: Sequence[str], since: datetime) -> Procedure[dict[str, datetime]]:
    """By schedule, for those that have one at or after ``since``."""
    result = yield _NEWEST_TICKS(keys=list(keys), since=since)
    return {row[0]: row[1] for row in result.rows}


def insert(key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[bool]:
    """Whether the tick wasn't there yet."""
    result = yield _INSERT_TICK(key=key, scheduled_for=scheduled_for, created_at=created_at)
    return bool(result.rows)


def earliest_other(key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[datetime | None]:
    """The first tick but this one; before None is answered, nobody else can be about to answer it.

    Two transactions that insert different ticks don't see one another. So the
    latch, which they all insert, makes the second wait for the first's end.
    """
    earliest = yield _EARLIEST_OTHER(key=key, own=[scheduled_for])
    if not earliest.rows:
        yield _INSERT_TICK(key=key, scheduled_for=_LATCH, created_at=created_at)
        earliest = yield _EARLIEST_OTHER(key=key, own=[scheduled_for, _LATCH])
        yield _DELETE_TICK(key=key, scheduled_for=_LATCH)
    return earliest.rows[0][0] if earliest.rows else None


def assign(key: str, scheduled_for: datetime, task_id: UUID) -> Procedure[None]:
    """Say which row the tick has enqueued."""
    yield _ASSIGN_TASK(key=key, scheduled_for=scheduled_for, task_id=task_id)
