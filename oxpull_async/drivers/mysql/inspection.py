"""What is there: tables, counts of rows, locks. Reads alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async._figures import Counts, FinishedCount, LockRow, PendingCount, UndecidedCount
from oxpull_async.drivers._migrations import load_steps
from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql._rows import aware, instant

_SQL = load_statements(__package__, "inspection.sql")
_PROBE_TABLES = _SQL["probe_tables"]
_LIST_STEPS = _SQL["list_steps"]
_COUNT_PENDING = _SQL["count_pending"]
_COUNT_UNDECIDED = _SQL["count_undecided"]
_COUNT_FINISHED = _SQL["count_finished"]
_LIST_LOCKS = _SQL["list_locks"]


def probe() -> Procedure[None]:
    """Whether the server answers, and has the tables."""
    yield _PROBE_TABLES()


def missing_steps() -> Procedure[list[str]]:
    """The schema's steps that aren't listed as applied, the ledger's own aside."""
    result = yield _LIST_STEPS()
    applied = {row[0] for row in result.rows}
    return [step.name for step in load_steps(__package__, lean=False)[1:] if step.name not in applied]


def count(now: datetime, since: datetime, limit: int) -> Procedure[Counts]:
    """Three statements, each of which sees what was committed before it."""
    pending = yield _COUNT_PENDING(now=instant(now))
    undecided = yield _COUNT_UNDECIDED(limit=limit)
    finished = yield _COUNT_FINISHED(since=instant(since), limit=limit)
    return Counts(
        pending=[_pending(row) for row in pending.rows],
        undecided=[UndecidedCount(*row) for row in undecided.rows],
        finished=[_finished(row) for row in finished.rows],
    )


def _pending(row: Row) -> PendingCount:
    queue_name, task_path, status, count, due, oldest_due_at, last_attempted_at = row
    return PendingCount(queue_name, task_path, status, count, due, aware(oldest_due_at), aware(last_attempted_at))


def _finished(row: Row) -> FinishedCount:
    queue_name, status, count, recent, earliest_finished_at, last_attempted_at = row
    return FinishedCount(queue_name, status, count, recent, aware(earliest_finished_at), aware(last_attempted_at))


def list_locks(after: str, limit: int) -> Procedure[Sequence[LockRow]]:
    """A page of locks, with their holders' statuses."""
    result = yield _LIST_LOCKS(after=after, limit=limit)
    return [_lock(row) for row in result.rows]


def _lock(row: Row) -> LockRow:
    key, task_id, task_path, queue_name, created_at, status = row
    return LockRow(key, task_id and UUID(task_id), task_path, queue_name, aware(created_at), status)
