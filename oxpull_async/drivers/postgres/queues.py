"""Queues that are paused, whose rows are passed over, and those of which only so much runs at once."""

from __future__ import annotations

from datetime import datetime

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements

_SQL = load_statements(__package__, "queues.sql")
_PAUSE_QUEUE = _SQL["pause_queue"]
_RESUME_QUEUE = _SQL["resume_queue"]
_PAUSED_QUEUES = _SQL["paused_queues"]
_LIMIT_QUEUE = _SQL["limit_queue"]
_UNLIMIT_QUEUE = _SQL["unlimit_queue"]
_LIMITED_QUEUES = _SQL["limited_queues"]
_LOCK_LIMIT = _SQL["lock_limit"]
_COUNT_RUNNING = _SQL["count_running"]


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


def limit(queue_name: str, places: int) -> Procedure[bool]:
    """Whether that is another limit than before."""
    result = yield _LIMIT_QUEUE(queue_name=queue_name, capacity=places)
    return result.count > 0


def unlimit(queue_name: str) -> Procedure[bool]:
    """Whether there was a limit."""
    result = yield _UNLIMIT_QUEUE(queue_name=queue_name)
    return result.count > 0


def limited() -> Procedure[list[tuple[str, int, int, datetime]]]:
    """Name, places, how many of them are taken, and the time of the limit, by name."""
    result = yield _LIMITED_QUEUES()
    return [(row[0], row[1], row[2], row[3]) for row in result.rows]


def free_places(queue_name: str) -> Procedure[int]:
    """How many, as long as the transaction lasts; none where there is no limit any more."""
    locked = yield _LOCK_LIMIT(queue_name=queue_name)
    if not locked.rows:
        return 0
    running = yield _COUNT_RUNNING(queue_name=queue_name)
    free: int = max(0, locked.rows[0][0] - running.rows[0][0])
    return free
