"""The log of ticks: a unique pair of schedule and instant lets each of them fire once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import instant, stored_instant, text

_SQL = load_statements(__package__, "ticks.sql")
_NEWEST_TICKS = _SQL["newest_ticks"]
_INSERT_TICK = _SQL["insert_tick"]
_EARLIEST_OTHER = _SQL["earliest_other"]
_ASSIGN_TASK = _SQL["assign_task"]


def newest(keys: Sequence[str], since: datetime) -> Procedure[dict[str, datetime]]:
    """By schedule, for those that have one at or after ``since``."""
    result = yield _NEWEST_TICKS(keys=json.dumps(list(keys)), since=text(since))
    return {row[0]: stored_instant(row[1]) for row in result.rows}


def insert(key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[bool]:
    """Whether the tick wasn't there yet."""
    result = yield _INSERT_TICK(key=key, scheduled_for=text(scheduled_for), created_at=text(created_at))
    return bool(result.rows)


def earliest_other(key: str, scheduled_for: datetime, created_at: datetime) -> Procedure[datetime | None]:
    """The first tick but this one; others can't be about to insert one, for this transaction is the only writer."""
    earliest = yield _EARLIEST_OTHER(key=key, scheduled_for=text(scheduled_for))
    return instant(earliest.rows[0][0]) if earliest.rows else None


def assign(key: str, scheduled_for: datetime, task_id: UUID) -> Procedure[None]:
    """Say which row the tick has enqueued."""
    yield _ASSIGN_TASK(key=key, scheduled_for=text(scheduled_for), task_id=task_id.hex)
