"""What keeps the tables in order: reaping, an operator's retry and discard, pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from oxpull_async.core.leases import Expired, with_abandoned_record
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql._rows import document, hex_ids, instant, lock_document, microseconds
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT, repeated
from oxpull_async.ports import Reaped

_SQL = load_statements(__package__, "maintenance.sql")
_FIND_EXPIRED = _SQL["find_expired"]
_LOCK_EXPIRED = _SQL["lock_expired"]
_REQUEUE = _SQL["requeue"]
_MARK_LOST = _SQL["mark_lost"]
_LOCK_RETRYABLE = _SQL["lock_retryable"]
_RETRY = _SQL["retry"]
_LOCK_DISCARDABLE = _SQL["lock_discardable"]
_DISCARD = _SQL["discard"]
_LOCK_CANCELLABLE = _SQL["lock_cancellable"]
_CANCEL = _SQL["cancel"]
_LOCK_LEASED = _SQL["lock_leased"]
_EXPIRE_LEASE = _SQL["expire_lease"]
_FIND_PRUNABLE = _SQL["find_prunable"]
_LOCK_PRUNABLE = _SQL["lock_prunable"]
_FORGET_TICKS = _SQL["forget_ticks"]
_DELETE_TASKS = _SQL["delete_tasks"]
_FIND_STALE_LOCKS = _SQL["find_stale_locks"]
_LOCK_SETTLED_HOLDERS = _SQL["lock_settled_holders"]
_FIND_OLD_TICKS = _SQL["find_old_ticks"]
_DELETE_TICKS = _SQL["delete_ticks"]
_DELETE_LOCKS = load_statements(__package__, "unique.sql")["delete_locks"]

_OPERATOR_WAIT_SECONDS = 10.0


def reap(lease_seconds: float, limit: int, now: datetime) -> Procedure[Reaped]:
    """Within a transaction: the rows stay locked from the look to the write."""
    lease = {"lease_microseconds": microseconds(lease_seconds)}
    found = yield _FIND_EXPIRED(**lease, limit=limit)
    if not found.rows:
        return Reaped([], [])
    locked = yield _LOCK_EXPIRED(**lease, ids=_ids(found.rows))
    expired = [Expired(UUID(row[0]), *row[1:]) for row in locked.rows]
    requeued = yield from _requeue([row for row in expired if row.has_attempts_left])
    lost = yield from _mark_lost([row for row in expired if not row.has_attempts_left], now)
    return Reaped(requeued, lost)


def _requeue(rows: Sequence[Expired]) -> Procedure[list[UUID]]:
    if rows:
        yield _REQUEUE(ids=hex_ids(row.id for row in rows))
    return [row.id for row in rows]


def _mark_lost(rows: Sequence[Expired], now: datetime) -> Procedure[list[UUID]]:
    if rows:
        lost = [{"id": row.id.hex, "errors": with_abandoned_record(row)} for row in rows]
        yield _MARK_LOST(rows=document(lost), now=instant(now))
    return [row.id for row in rows]


def retry(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    """The ids that are READY again."""
    return (yield from repeated(lambda: _change(task_ids, _LOCK_RETRYABLE, _RETRY), _OPERATOR_WAIT_SECONDS))


def discard(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    values = {"now": instant(now)}
    return (
        yield from repeated(lambda: _change(task_ids, _LOCK_DISCARDABLE, _DISCARD, **values), _OPERATOR_WAIT_SECONDS)
    )


def cancel(task_ids: Sequence[UUID], now: datetime) -> Procedure[list[UUID]]:
    """The ids that are DISCARDED now."""
    values = {"now": instant(now)}
    return (
        yield from repeated(lambda: _change(task_ids, _LOCK_CANCELLABLE, _CANCEL, **values), _OPERATOR_WAIT_SECONDS)
    )


def expire_lease(task_ids: Sequence[UUID], expired_at: datetime) -> Procedure[list[UUID]]:
    """The ids whose lease is over now."""
    values = {"expired_at": instant(expired_at)}
    return (
        yield from repeated(lambda: _change(task_ids, _LOCK_LEASED, _EXPIRE_LEASE, **values), _OPERATOR_WAIT_SECONDS)
    )


def _change(task_ids: Sequence[UUID], lock: Statement, change: Statement, **values: Any) -> Procedure[list[UUID]]:
    yield BEGIN()
    locked = yield lock(ids=hex_ids(task_ids))
    if locked.rows:
        yield change(ids=_ids(locked.rows), **values)
    yield COMMIT()
    return [UUID(row[0]) for row in locked.rows]


def prune_tasks(statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete settled rows, once no tick points at them."""
    chosen = {"statuses": tuple(map(str, statuses)), "finished_before": instant(finished_before)}
    found = yield _FIND_PRUNABLE(**chosen, limit=limit)
    locked = (yield _LOCK_PRUNABLE(**chosen, ids=_ids(found.rows))) if found.rows else found
    if not locked.rows:
        return 0
    yield _FORGET_TICKS(ids=_ids(locked.rows))
    deleted = yield _DELETE_TASKS(ids=document([UUID(row[0]).hex for row in locked.rows]))
    return deleted.count


def prune_locks(limit: int) -> Procedure[int]:
    """Within a transaction: delete stale locks by (key, task id), their holders locked first.

    A status subquery alone would judge by a snapshot older than a retry that
    is committing at this moment.
    """
    found = yield _FIND_STALE_LOCKS(limit=limit)
    present = [row[2] for row in found.rows if row[2] is not None]
    settled: set[str] = set()
    if present:
        locked = yield _LOCK_SETTLED_HOLDERS(ids=tuple(present))
        settled = {row[0] for row in locked.rows}
    stale = [row for row in found.rows if row[2] is None or row[2] in settled]
    if not stale:
        return 0
    deleted = yield _DELETE_LOCKS(locks=lock_document(stale))
    return deleted.count


def prune_ticks(scheduled_before: datetime, limit: int) -> Procedure[int]:
    """Delete old ticks, but each schedule's newest."""
    found = yield _FIND_OLD_TICKS(scheduled_before=instant(scheduled_before), limit=limit)
    if not found.rows:
        return 0
    deleted = yield _DELETE_TICKS(tick_ids=_ids(found.rows))
    return deleted.count


def _ids(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(row[0] for row in rows)
