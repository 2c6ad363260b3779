"""What keeps the tables in order: reaping, an operator's retry and discard, pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.leases import Expired, with_abandoned_record
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.ports import Reaped

_SQL = load_statements(__package__, "maintenance.sql")
_LOCK_EXPIRED = _SQL["lock_expired"]
_REQUEUE = _SQL["requeue"]
_MARK_LOST = _SQL["mark_lost"]
_RETRY = _SQL["retry"]
_DISCARD = _SQL["discard"]
_CANCEL = _SQL["cancel"]
_EXPIRE_LEASE = _SQL["expire_lease"]
_LOCK_PRUNABLE = _SQL["lock_prunable"]
_FORGET_TICKS = _SQL["forget_ticks"]
_DELETE_TASKS = _SQL["delete_tasks"]
_DELETE_TICKS = _SQL["delete_ticks"]
_FIND_STALE_LOCKS = _SQL["find_stale_locks"]
_LOCK_SETTLED_HOLDERS = _SQL["lock_settled_holders"]
_DELETE_STALE_LOCKS = load_statements(__package__, "unique.sql")["delete_stale_locks"]


def reap(lease_seconds: float, limit: int, now: datetime) -> Procedure[Reaped]:
    """Within a transaction: the rows stay locked from the look to the write."""
    result = yield _LOCK_EXPIRED(lease_seconds=lease_seconds, limit=limit)
    expired = [Expired(*row) for row in result.rows]
    requeued = yield from _requeue([row for row in expired if row.has_attempts_left])
    lost = yield from _mark_lost([row for row in expired if not row.has_attempts_left], now)
    return Reaped(requeued, lost)


def _requeue(rows: Sequence[Expired]) -> Procedure[list[UUID]]:
    if not rows:
        return []
    result = yield _REQUEUE(ids=[row.id for row in rows], epochs=[row.lease_epoch for row in rows])
    return [row[0] for row in result.rows]


def _mark_lost(rows: Sequence[Expired], now: datetime) -> Procedure[list[UUID]]:
    if not rows:
        return []
    result = yield _MARK_LOST(
        ids=[row.id for row in rows],
        epochs=[row.lease_epoch for row in rows],
        errors=[with_abandoned_record(row) for row in rows],
        now=now,
    )
    return [row[0] for row in result.rows]


def retry(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    """The ids that are READY again."""
    result = yield _RETRY(ids=list(task_ids))
    return [row[0] for row in result.rows]


def discard(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    result = yield _DISCARD(ids=list(task_ids), now=now)
    return [row[0] for row in result.rows]


def cancel(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    result = yield _CANCEL(ids=list(task_ids), now=now)
    return [row[0] for row in result.rows]


def expire_lease(task_ids: Sequence[UUID], expired_at: datetime) -> Procedure[list[UUID]]:
    """The ids whose lease is over now."""
    result = yield _EXPIRE_LEASE(ids=list(task_ids), expired_at=expired_at)
    return [row[0] for row in result.rows]


def prune_tasks(statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete settled rows, once no tick points at them."""
    result = yield _LOCK_PRUNABLE(
        statuses=[str(status) for status in statuses], finished_before=finished_before, limit=limit
    )
    ids = [row[0] for row in result.rows]
    if not ids:
        return 0
    yield _FORGET_TICKS(ids=ids)
    deleted = yield _DELETE_TASKS(ids=ids)
    return deleted.count


def prune_locks(limit: int) -> Procedure[int]:
    """Within a transaction: delete stale locks by (key, task id), their holders locked first.

    A status subquery alone would judge by a snapshot older than a retry that
    is committing at this moment.
    """
    found = yield _FIND_STALE_LOCKS(limit=limit)
    present = [row[2] for row in found.rows if row[2] is not None]
    settled: set[UUID] = set()
    if present:
        locked = yield _LOCK_SETTLED_HOLDERS(ids=present)
        settled = {row[0] for row in locked.rows}
    stale = [row for row in found.rows if row[2] is None or row[2] in settled]
    if not stale:
        return 0
    deleted = yield _DELETE_STALE_LOCKS(keys=[row[0] for row in stale], task_ids=[row[1] for row in stale])
    return deleted.count


def prune_ticks(scheduled_before: datetime, limit: int) -> Procedure[int]:
    """Delete old ticks, but each schedule's newest."""
    deleted = yield _DELETE_TICKS(scheduled_before=scheduled_before, limit=limit)
    return deleted.count
