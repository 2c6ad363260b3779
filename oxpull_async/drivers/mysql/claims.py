"""Claims and leases: a row is granted to one worker at a time, for a time, under an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql._rows import claim as read_claim
from oxpull_async.drivers.mysql._rows import instant, microseconds
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT
from oxpull_async.ports import Claim, ClaimRequest

_SQL = load_statements(__package__, "claims.sql")
_FIND_DUE = _SQL["find_due"]
_LOCK_DUE = _SQL["lock_due"]
_GRANT_CLAIMS = _SQL["grant_claims"]
_HELD = _SQL["held"]
_NEXT_DUE = _SQL["next_due"]
_LOCK_LEASES = _SQL["lock_leases"]
_EXTEND_LEASES = _SQL["extend_leases"]
_LOCK_UNRUN = _SQL["lock_unrun"]
_REFUND = _SQL["refund"]

_PATH = 0


def probe(request: ClaimRequest) -> None:
    """Nothing to ask first: a claim begins with a look that locks nothing."""


def claim(request: ClaimRequest) -> Procedure[list[Claim]]:
    """Look how far each path's line is due, lock as many rows of each, grant them."""
    found = yield _FIND_DUE.many([due(request, path, request.limit) for path in dict.fromkeys(request.task_paths)])
    if not found.rows:
        return []
    yield BEGIN()
    ids = yield from _lock_heads(request, found.rows)
    if not ids:
        yield COMMIT()
        return []
    result = yield _GRANT_CLAIMS(
        ids=ids, worker_id=request.worker_id, lease_microseconds=microseconds(request.lease_seconds)
    )
    return sorted(map(read_claim, result.rows), key=_order)


def _lock_heads(request: ClaimRequest, heads: Sequence[Row]) -> Procedure[tuple[str, ...]]:
    """The first rows of all lines together; where others are taking those, the next ones of any line."""
    first = sorted(heads, key=_by_priority_and_age)[: request.limit]
    shares = Counter(row[_PATH] for row in first)
    locked = yield from _lock_due(request, shares)
    missing = len(first) - len(locked)
    if missing > 0:
        locked |= yield from _lock_due(request, {row[_PATH]: shares[row[_PATH]] + missing for row in heads})
    return tuple(sorted(locked, key=lambda id_: _by_priority_and_age((id_, *locked[id_])))[: request.limit])


def _lock_due(request: ClaimRequest, limits: Mapping[str, int]) -> Procedure[dict[str, tuple[int, datetime]]]:
    """By id, each with its priority and age. Lines in one order: InnoDB sometimes waits where it should pass over."""
    result = yield _LOCK_DUE.many([due(request, path, limits[path]) for path in sorted(limits)])
    return {row[0]: (row[1], row[2]) for row in result.rows}


def _by_priority_and_age(row: Row) -> tuple[int, datetime]:
    return -row[1], row[2]


def _order(claim: Claim) -> tuple[int, datetime, UUID]:
    return -claim.priority, claim.enqueued_at, claim.id


def due(request: ClaimRequest, path: str, limit: int) -> dict[str, Any]:
    shared = {
        "passed_queues": tuple(request.passed_queues),
        "limited_queue": request.limited_queue,
        "now": instant(request.now),
        "limit": limit,
    }
    return {**_wanted(path, request.queues), **shared}


def _wanted(path: str, queues: Sequence[str] | None) -> dict[str, Any]:
    return {"task_path": path, "any_queue": queues is None, "queues": tuple(queues or ())}


def held(worker_id: str) -> Procedure[list[Claim]]:
    """What runs under a worker's name."""
    result = yield _HELD(worker_id=worker_id)
    return [read_claim(row) for row in result.rows]


def next_due(task_paths: Sequence[str], queues: Sequence[str] | None, now: datetime) -> Procedure[datetime | None]:
    """When the next row of these paths becomes due after ``now``."""
    after = {"now": instant(now)}
    found = yield _NEXT_DUE.many([{**_wanted(path, queues), **after} for path in dict.fromkeys(task_paths)])
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
