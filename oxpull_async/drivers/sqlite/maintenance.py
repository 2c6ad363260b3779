"""What keeps the tables in order: reaping, an operator's retry and discard, pruning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.leases import Expired, with_abandoned_record
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import granted_array, id_array, modifier, text
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
_DELETE_STALE_LOCKS = load_statements(__package__, "unique.sql")["delete_stale_locks"]


def reap(lease_seconds: float, limit: int, now: datetime) -> Procedure[Reaped]:
    """Within a transaction: nobody writes from the look to the write."""
    result = yield _LOCK_EXPIRED(lease_ago=modifier(-lease_seconds), limit=limit)
    expired = [Expired(UUID(row[0]), *row[1:]) for row in result.rows]
    requeued = yield from _requeue([row for row in expired if row.has_attempts_left])
    lost = yield from _mark_lost([row for row in expired if not row.has_attempts_left], now)
    return Reaped(requeued, lost)


def _requeue(rows: Sequence[Expired]) -> Procedure[list[UUID]]:
    if not rows:
        return []
    result = yield _REQUEUE(granted=granted_array((row.id, row.lease_epoch) for row in rows))
    return [UUID(row[0]) for row in result.rows]


def _mark_lost(rows: Sequence[Expired], now: datetime) -> Procedure[list[UUID]]:
    lost: list[UUID] = []
    for row in rows:
        result = yield _MARK_LOST(
            id=row.id.hex, epoch=row.lease_epoch, errors=with_abandoned_record(row), now=text(now)
        )
        lost += [row.id] if result.count else []
    return lost


def retry(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    """The ids that are READY again."""
    result = yield _RETRY(ids=id_array(task_ids))
    return [UUID(row[0]) for row in result.rows]


def discard(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    result = yield _DISCARD(ids=id_array(task_ids), now=text(now))
    return [UUID(row[0]) for row in result.rows]


def cancel(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    result = yield _CANCEL(ids=id_array(task_ids), now=text(now))
    return [UUID(row[0]) for row in result.rows]


def expire_lease(task_ids: Sequence[UUID], expired_at: datetime) -> Procedure[list[UUID]]:
    """The ids whose lease is over now."""
    result = yield _EXPIRE_LEASE(ids=id_array(task_ids), expired_at=text(expired_at))
    return [UUID(row[0]) for row in result.rows]


def prune_tasks(statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete settled rows, once no tick points at them."""
    result = yield _LOCK_PRUNABLE(
        statuses=json.dumps([str(status) for status in statuses]),
        finished_before=text(finished_before),
        limit=limit,
    )
    ids = json.dumps([row[0] for row in result.rows])
    if not result.rows:
        return 0
    yield _FORGET_TICKS(ids=ids)
    deleted = yield _DELETE_TASKS(ids=ids)
    return deleted.count


def prune_locks(limit: int) -> Procedure[int]:
    """Within a transaction: delete locks whose holder is settled or gone."""
    deleted = yield _DELETE_STALE_LOCKS(limit=limit)
    return deleted.count


def prune_ticks(scheduled_before: datetime, limit: int) -> Procedure[int]:
    """Delete old ticks, but each schedule's newest."""
    deleted = yield _DELETE_TICKS(scheduled_before=text(scheduled_before), limit=limit)
    return deleted.count
