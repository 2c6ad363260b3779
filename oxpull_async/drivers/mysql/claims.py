"""Claims and leases: a row is granted to one worker at a time, for a time, under an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql._rows import claim as read_claim
from oxpull_async.drivers.mysql._rows import instant, microseconds
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT
from oxpull_async.ports import Claim, ClaimRequest

_SQL = load_statements(__package__, "claims.sql")
_FIND_DUE = _SQL["find_due"]
_FIND_DUE_AMONG_FIRST = _SQL["find_due_among_first"]
_FIND_LATE = _SQL["find_late"]
_LOCK_DUE = _SQL["lock_due"]
_LOCK_LATE = _SQL["lock_late"]
_GRANT_CLAIMS = _SQL["grant_claims"]
_HELD = _SQL["held"]
_NEXT_DUE = _SQL["next_due"]
_LOCK_LEASES = _SQL["lock_leases"]
_EXTEND_LEASES = _SQL["extend_leases"]
_LOCK_UNRUN = _SQL["lock_unrun"]
_REFUND = _SQL["refund"]

_FEW = 500
"""As many rows whose run_after has come are read of each path, and put in order here."""


class Head(NamedTuple):
    """A row that is due."""

    id: str
    path: str
    priority: int
    enqueued_at: datetime
    is_late: bool
    """Whether it's to be locked by its id, and not by its place in its path's line."""


def probe(request: ClaimRequest) -> None:
    """Nothing to ask first: a claim begins with a look that locks nothing."""


def claim(request: ClaimRequest) -> Procedure[list[Claim]]:
    """Look how far each path's line is due, lock as many rows of each, grant them."""
    found = yield from due_heads(request, request.limit)
    if not found:
        return []
    yield BEGIN()
    ids = yield from _lock_heads(request, found)
    if not ids:
        yield COMMIT()
        return []
    result = yield _GRANT_CLAIMS(
        ids=ids, worker_id=request.worker_id, lease_microseconds=microseconds(request.lease_seconds)
    )
    return sorted(map(read_claim, result.rows), key=_order)


def due_heads(request: ClaimRequest, limit: int) -> Procedure[list[Head]]:
    """At least so many of the first rows of all lines, as far as they are due, in their order."""
    paths = list(dict.fromkeys(request.task_paths))
    result = yield _FIND_DUE.many([due(request, path, limit) for path in paths])
    heads = [Head(*row) for row in result.rows]
    late = Counter(head.path for head in heads if head.is_late)
    for path in [path for path in paths if late[path] >= _FEW]:
        others = [head for head in heads if head.path != path]
        heads = others + (yield from _first_of_many(request, path, limit, [h for h in heads if h.path == path]))
    return sorted(heads, key=_by_priority_and_age)


def _first_of_many(request: ClaimRequest, path: str, limit: int, found: Sequence[Head]) -> Procedure[list[Head]]:
    """Of a path with very many rows whose run_after has come: they are put in order only where it can't be helped."""
    wanted = due(request, path, limit)
    first = yield _FIND_DUE_AMONG_FIRST(**wanted)
    if len(first.rows) >= limit:
        return [Head(*row) for row in first.rows]
    late = yield _FIND_LATE(**wanted)
    return [head for head in found if not head.is_late] + [Head(*row) for row in late.rows]


def _lock_heads(request: ClaimRequest, heads: Sequence[Head]) -> Procedure[tuple[str, ...]]:
    """The first rows of all lines together; where others are taking those, the next ones of any line."""
    first = heads[: request.limit]
    shares = Counter(head.path for head in first if not head.is_late)
    late = [head.id for head in heads if head.is_late]
    share = sum(head.is_late for head in first)
    locked = yield from _lock_due(request, shares, late[:share])
    missing = len(first) - len(locked)
    if missing > 0:
        more = {head.path: shares[head.path] + missing for head in heads if not head.is_late}
        locked |= yield from _lock_due(request, more, late[share : share + missing])
    return tuple(sorted(locked, key=lambda id_: (-locked[id_][0], locked[id_][1]))[: request.limit])


def _lock_due(
    request: ClaimRequest, limits: Mapping[str, int], late: Sequence[str]
) -> Procedure[dict[str, tuple[int, datetime]]]:
    """By id, each with its priority and age. Lines in one order: InnoDB sometimes waits where it should pass over."""
    rows: list[Row] = []
    if limits:
        rows += (yield _LOCK_DUE.many([_wanted(request, path, limits[path]) for path in sorted(limits)])).rows
    if late:
        rows += (yield _LOCK_LATE(ids=tuple(late), now=instant(request.now))).rows
    return {row[0]: (row[1], row[2]) for row in rows}


def _by_priority_and_age(head: Head) -> tuple[int, datetime]:
    return -head.priority, head.enqueued_at


def _order(claim: Claim) -> tuple[int, datetime, UUID]:
    return -claim.priority, claim.enqueued_at, claim.id


def due(request: ClaimRequest, path: str, limit: int) -> dict[str, Any]:
    """What says which rows of a path are due."""
    return {**_wanted(request, path, limit), "now": instant(request.now)}


def _wanted(request: ClaimRequest, path: str, limit: int) -> dict[str, Any]:
    shared = {
        "passed_queues": tuple(request.passed_queues),
        "limited_queue": request.limited_queue,
        "limit": limit,
    }
    return {"task_path": path, **_queues(request.queues), **shared}


def _queues(queues: Sequence[str] | None) -> dict[str, Any]:
    return {"any_queue": queues is None, "queues": tuple(queues or ())}


def held(worker_id: str) -> Procedure[list[Claim]]:
    """What runs under a worker's name."""
    result = yield _HELD(worker_id=worker_id)
    return [read_claim(row) for row in result.rows]


def next_due(task_paths: Sequence[str], queues: Sequence[str] | None, now: datetime) -> Procedure[datetime | None]:
    """When the next row of these paths becomes due after ``now``."""
    after = {"now": instant(now)}
    paths = dict.fromkeys(task_paths)
    found = yield _NEXT_DUE.many([{"task_path": path, **_queues(queues), **after} for path in paths])
    return min((row[0].replace(tzinfo=UTC) for row in found.rows if row[0] is not None), default=None)


def renew(claims: Sequence[Claim], worker_id: str, lease_seconds: float) -> Procedure[list[UUID]]:
    """The ids whose lease was extended."""
    ids = yield from _lock(_LOCK_LEASES, claims, worker_id)
    if ids:
        yield _EXTEND_LEASES(ids=ids, lease_microseconds=microseconds(lease_seconds))
    return [UUID(id_) for id_ in ids]


def release(claims: Sequence[Claim], worker_id: str) -> Procedure[list[UUID]]:
    """The ids given back."""
    ids = yield from _lock(_LOCK_UNRUN, claims, worker_id)
    if ids:
        yield _REFUND(ids=ids)
    return [UUID(id_) for id_ in ids]


def _lock(statement: Statement, claims: Sequence[Claim], worker_id: str) -> Procedure[tuple[str, ...]]:
    yield BEGIN()
    fences = tuple((claim.id.hex, claim.lease_epoch) for claim in claims)
    result = yield statement(fences=fences, worker_id=worker_id)
    if not result.rows:
        yield COMMIT()
    return tuple(row[0] for row in result.rows)
