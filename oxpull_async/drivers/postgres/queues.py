"""Queues that are paused: their rows stay READY, and are passed over."""

from __future__ import annotations

from datetime import datetime

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements

_SQL = load_statements(__package__, "queues.sql")
_PAUSE_QUEUE = _SQL["pause_queue"]
_RESUME_QUEUE = _SQL["resume_queue"]
_PAUSED_QUEUES = _SQL["paused_queues"]


def pause(queue_name: str) -> Procedure[bool]:
    """Whether it wasn't paused before."""
    result = yield _PAUSE_QUEUE(queue_name=queue_name)
    return result.count > 0


def resume(queue_name: str) -> Procedure[bool]:
    """Whether it was paused."""
    result = yield _RESUME_QUEUE(queue_name=queue_name)
    return result.count > 0


def paused() -> Procedure[list[tuple[str, datetime]]]:
    """Name and time of the pause, by name."""
    result = yield _PAUSED_QUEUES()
    return [(row[0], row[1]) for row in result.rows]
