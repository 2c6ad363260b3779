"""Rate limits: the meters that count starts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from oxpull_async.core.limits import Bucket, Meter, Window
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql._rows import instant
from oxpull_async.drivers.mysql.claims import due_heads
from oxpull_async.ports import ClaimRequest

_SQL = load_statements(__package__, "limits.sql")
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
    heads = yield from due_heads(request, request.limit)
    return [(head.priority, _utc(head.enqueued_at)) for head in heads[: request.limit]]


def lock_windows(names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]:
    """Those that exist, each with the database's time."""
    result = yield _LOCK_WINDOWS(names=tuple(names))
    asked = {name.casefold(): name for name in names}  # the column may know them by another case
    meters: dict[str, tuple[Meter, datetime]] = {}
    for stored, window_id, started_at, used, now in result.rows:
        meters[asked[stored.casefold()]] = Window(window_id, _utc(started_at), used), _utc(now)
    return meters


def make_window(name: str) -> Procedure[None]:
    """Open the first one."""
    yield _MAKE_WINDOW(name=name)


def write_window(name: str, window: Window) -> Procedure[None]:
    """Under its lock."""
    yield _WRITE_WINDOW(name=name, window_id=window.id, started_at=instant(window.started_at), used=window.used)


def uncount(name: str, window_id: int, count: int) -> Procedure[None]:
    """Starts that didn't happen, in their own window."""
    yield _UNCOUNT(name=name, window_id=window_id, count=count)


def lock_buckets(names: Sequence[str]) -> Procedure[dict[str, tuple[Meter, datetime]]]:
    """Those that exist, each with the database's time."""
    result = yield _LOCK_BUCKETS(names=tuple(names))
    return {row[0]: (Bucket(row[1], _utc(row[2])), _utc(row[3])) for row in result.rows}


def make_bucket(name: str, tokens: float) -> Procedure[None]:
    """Begin with so much in it."""
    yield _MAKE_BUCKET(name=name, tokens=float(tokens))


def write_bucket(name: str, bucket: Bucket, full_at: datetime) -> Procedure[None]:
    """Under its lock."""
    yield _WRITE_BUCKET(name=name, tokens=bucket.tokens, as_of=instant(bucket.as_of), full_at=instant(full_at))


def refill(name: str, count: int, capacity: int) -> Procedure[None]:
    """Starts that didn't happen."""
    yield _REFILL(name=name, count=count, capacity=float(capacity))


def prune_buckets(limit: int) -> Procedure[int]:
    """How many were deleted."""
    result = yield _DELETE_BUCKETS(limit=limit)
    return result.count


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)
