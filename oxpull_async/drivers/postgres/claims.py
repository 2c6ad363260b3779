"""Claims and leases: a row is granted to one worker at a time, for a time, under an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.ports import Claim, ClaimRequest

_SQL = load_statements(__package__, "claims.sql")
_CLAIM = _SQL["claim"]
_CLAIM_AMONG = _SQL["claim_among"]
_FIND_LATE_ROW = _SQL["find_late_row"]
_CLAIM_FROM_ALL_LINES = _SQL["claim_from_all_lines"]
_HELD = _SQL["held"]
_NEXT_DUE = _SQL["next_due"]
_RENEW = _SQL["renew"]
_RELEASE = _SQL["release"]


def probe(request: ClaimRequest) -> None:
    """Nothing to ask first: an empty claim locks nothing and writes nothing."""


def claim(request: ClaimRequest) -> Procedure[list[Claim]]:
    """One statement as long as no row with a run_after is due; what it returns is in no order, so it's sorted here."""
    paths = list(dict.fromkeys(request.task_paths))
    granting = {
        **due(request),
        "limit": request.limit,
        "worker_id": request.worker_id,
        "lease_seconds": request.lease_seconds,
    }
    if len(paths) == 1:
        result = yield _CLAIM(**granting, task_path=paths[0])
    else:
        result = yield _CLAIM_AMONG(**granting, task_paths=paths)
    if not result.rows and (yield _FIND_LATE_ROW(**_queues(request.queues), task_paths=paths, now=request.now)).rows:
        result = yield _CLAIM_FROM_ALL_LINES(**granting, task_paths=paths)
    return sorted((Claim(*row) for row in result.rows), key=_order)


def held(worker_id: str) -> Procedure[list[Claim]]:
    """What runs under a worker's name."""
    result = yield _HELD(worker_id=worker_id)
    return [Claim(*row) for row in result.rows]


def next_due(task_paths: Sequence[str], queues: Sequence[str] | None, now: datetime) -> Procedure[datetime | None]:
    """When the next row of these paths becomes due after ``now``."""
    result = yield _NEXT_DUE(task_paths=list(task_paths), **_queues(queues), now=now)
    found: datetime | None = result.rows[0][0]
    return found


def renew(claims: Sequence[Claim], worker_id: str, lease_seconds: float) -> Procedure[list[UUID]]:
    """The ids whose lease was extended."""
    result = yield _RENEW(**_fences(claims), worker_id=worker_id, lease_seconds=lease_seconds)
    return [row[0] for row in result.rows]


def release(claims: Sequence[Claim], worker_id: str) -> Procedure[list[UUID]]:
    """The ids given back."""
    result = yield _RELEASE(**_fences(claims), worker_id=worker_id)
    return [row[0] for row in result.rows]


def _order(claim: Claim) -> tuple[int, datetime, UUID]:
    return -claim.priority, claim.enqueued_at, claim.id


def due(request: ClaimRequest) -> dict[str, Any]:
    """What says which rows are due, the paths apart."""
    return {
        **_queues(request.queues),
        "passed_queues": list(request.passed_queues),
        "limited_queue": request.limited_queue,
        "now": request.now,
    }


def _queues(queues: Sequence[str] | None) -> dict[str, Any]:
    return {"any_queue": queues is None, "queues": list(queues or ())}


def _fences(claims: Sequence[Claim]) -> dict[str, list[object]]:
    return {"ids": [claim.id for claim in claims], "epochs": [claim.lease_epoch for claim in claims]}
