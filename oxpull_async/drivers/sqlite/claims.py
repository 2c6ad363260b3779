"""Claims and leases: a row is granted to one worker at a time, for a time, under an epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import claim_row, granted_array, instant, modifier, text
from oxpull_async.ports import Claim, ClaimRequest

_SQL = load_statements(__package__, "claims.sql")
_PROBE = _SQL["probe"]
_FIND_LATE_ROW = _SQL["find_late_row"]
_CLAIM = _SQL["claim"]
_CLAIM_FROM_ALL_LINES = _SQL["claim_from_all_lines"]
_HELD = _SQL["held"]
_NEXT_DUE = _SQL["next_due"]
_RENEW = _SQL["renew"]
_RELEASE = _SQL["release"]


def probe(request: ClaimRequest) -> Procedure[bool]:
    """Whether a row is due, asked beside the writers."""
    result = yield _PROBE(**due(request))
    return bool(result.rows[0][0])


def claim(request: ClaimRequest) -> Procedure[list[Claim]]:
    """In one hop; what it returns is in no order, so it's sorted here."""
    wanted = due(request)
    late = yield _FIND_LATE_ROW(**wanted)
    statement = _CLAIM_FROM_ALL_LINES if late.rows else _CLAIM
    undated = {name: value for name, value in wanted.items() if late.rows or name != "now"}
    result = yield statement(
        **undated,
        limit=request.limit,
        worker_id=request.worker_id,
        worker_json=json.dumps(request.worker_id),
        lease=modifier(request.lease_seconds),
    )
    return sorted(map(claim_row, result.rows), key=_order)


def held(worker_id: str) -> Procedure[list[Claim]]:
    """What runs under a worker's name."""
    result = yield _HELD(worker_id=worker_id)
    return [claim_row(row) for row in result.rows]


def next_due(task_paths: Sequence[str], queues: Sequence[str] | None, now: datetime) -> Procedure[datetime | None]:
    """When the next row of these paths becomes due after ``now``."""
    result = yield _NEXT_DUE(**_wanted(task_paths, queues), now=text(now))
    return instant(result.rows[0][0])


def renew(claims: Sequence[Claim], worker_id: str, lease_seconds: float) -> Procedure[list[UUID]]:
    """The ids whose lease was extended."""
    result = yield _RENEW(granted=_fences(claims), worker_id=worker_id, lease=modifier(lease_seconds))
    return [UUID(row[0]) for row in result.rows]


def release(claims: Sequence[Claim], worker_id: str) -> Procedure[list[UUID]]:
    """The ids given back."""
    result = yield _RELEASE(granted=_fences(claims), worker_id=worker_id)
    return [UUID(row[0]) for row in result.rows]


def _order(claim: Claim) -> tuple[int, datetime, UUID]:
    return -claim.priority, claim.enqueued_at, claim.id


def due(request: ClaimRequest) -> dict[str, Any]:
    """What says which rows are due."""
    return {
        **_wanted(request.task_paths, request.queues),
        "passed_queues": json.dumps(list(request.passed_queues)),
        "limited_queue": request.limited_queue,
        "now": text(request.now),
    }


def _wanted(task_paths: Sequence[str], queues: Sequence[str] | None) -> dict[str, Any]:
    return {
        "task_paths": json.dumps(list(task_paths)),
        "any_queue": int(queues is None),
        "queues": json.dumps(list(queues or ())),
    }


def _fences(claims: Sequence[Claim]) -> str:
    return granted_array((claim.id, claim.lease_epoch) for claim in claims)
