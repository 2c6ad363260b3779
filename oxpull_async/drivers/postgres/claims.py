"""Claims and leases: a row is granted to one worker at a time, for a time, under an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.ports import Claim, ClaimRequest

_SQL = load_statements(__package__, "claims.sql")
_CLAIM = _SQL["claim"]
_RENEW = _SQL["renew"]
_RELEASE = _SQL["release"]


def probe(request: ClaimRequest) -> None:
    """Nothing to ask first: an empty claim locks nothing and writes nothing."""


def claim(request: ClaimRequest) -> Procedure[list[Claim]]:
    """One statement; what it returns is in no order, so it's sorted here."""
    result = yield _CLAIM(
        task_paths=list(request.task_paths),
        any_queue=request.queues is None,
        queues=list(request.queues or ()),
        limit=request.limit,
        worker_id=request.worker_id,
        lease_seconds=request.lease_seconds,
        now=request.now,
    )
    claims = [Claim(*row) for row in result.rows]
    return sorted(claims, key=lambda claim: (-claim.priority, claim.enqueued_at, claim.id))


def renew(claims: Sequence[Claim], worker_id: str, lease_seconds: float) -> Procedure[list[UUID]]:
    """The ids whose lease was extended."""
    result = yield _RENEW(**_fences(claims), worker_id=worker_id, lease_seconds=lease_seconds)
    return [row[0] for row in result.rows]


def release(claims: Sequence[Claim], worker_id: str) -> Procedure[list[UUID]]:
    """The ids given back."""
    result = yield _RELEASE(**_fences(claims), worker_id=worker_id)
    return [row[0] for row in result.rows]


def _fences(claims: Sequence[Claim]) -> dict[str, list[object]]:
    return {"ids": [claim.id for claim in claims], "epochs": [claim.lease_epoch for claim in claims]}
