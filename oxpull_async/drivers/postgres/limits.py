"""Rate limits: the meters that count starts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from oxpull_async.core.limits import Bucket, Meter, Window
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.ports import ClaimRequest

_SQL = load_statements(__package__, "limits.sql")
_PEEK = _SQL["peek"]
_LOCK_WINDOWS = _SQL["lock_windows"]
_MAKE_WINDOW = _SQL["make_window"]
_WRITE_WINDOW = _SQL["write_window"]
_UNCOUNT = _SQL["uncount"]
_LOCK_BUCKETS = _SQL["lock_buckets"]
_MAKE_BUCKET = _SQL["make_bucket"]
_WRITE_BUCKET = _SQL["write_bucket"]
_REFILL = _SQL["refill"]
_DELETE_BUCKETS = _SQL["delete_buckets"]


def peek(request: ClaimRequest) -> Procedure[list[tuple[int, datetime]]]:
    """Priority and age of the first due rows."""
    result = yield _PEEK(
        task_paths=list(request.task_paths),
        any_queue=request.queues is None,
        queues=list(request.queues or ()),
        passed_queues=list(request.passed_queues),
        limited_queue=request.limited_queue,
        limit=request.limit,
        now=request.now,
    )
    return [(row[0], row[1]) for row in result.rows]


def lock_windows(names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]:
    """Those that exist, each with the database's time."""
    result = yield _LOCK_WINDOWS(names=list(names))
    return {row[0]: (Window(row[1], row[2], row[3]), row[4]) for row in result.rows}


def make_window(name: str) -> Procedure[None]:
    """Open the first one."""
    yield _MAKE_WINDOW(name=name)


def write_window(name: str, window: Window) -> Procedure[None]:
    """Under its lock."""
    yield _WRITE_WINDOW(name=name, window_id=window.id, started_at=window.started_at, used=window.used)


def uncount(name: str, window_id: int, count: int) -> Procedure[None]:
    """Starts that didn't happen, in their own window."""
    yield _UNCOUNT(name=name, window_id=window_id, count=count)


def lock_buckets(names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]:
    """Those that exist, each with the database's time."""
    result = yield _LOCK_BUCKETS(names=list(names))
    return {row[0]: (Bucket(row[1], row[2]), row[3]) for row in result.rows}


def make_bucket(name: str, tokens: float) -> Procedure[None]:
    """Begin with so much in it."""
    yield _MAKE_BUCKET(name=name, tokens=float(tokens))


def write_bucket(name: str, bucket: Bucket, full_at: datetime) -> Procedure[None]:
    """Under its lock."""
    yield _WRITE_BUCKET(name=name, tokens=bucket.tokens, as_of=bucket.as_of, full_at=full_at)


def refill(name: str, count: int, capacity: int) -> Procedure[None]:
    """Starts that didn't happen."""
    yield _REFILL(name=name, count=count, capacity=float(capacity))


def prune_buckets(limit: int) -> Procedure[int]:
    """How many were deleted."""
    result = yield _DELETE_BUCKETS(limit=limit)
    return result.count
