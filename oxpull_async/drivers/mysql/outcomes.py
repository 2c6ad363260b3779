"""Outcomes: what attempts ended with, written many at once and fenced one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql._rows import hex_ids, instant
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT
from oxpull_async.ports import Outcome

_SQL = load_statements(__package__, "outcomes.sql")
_FIND_TASK_LOCKS = _SQL["find_task_locks"]
_LOCK_OUTCOMES = _SQL["lock_outcomes"]
_SETTLE: dict[TaskStatus, Statement] = {
    TaskStatus.SUCCESSFUL: _SQL["settle_success"],
    TaskStatus.READY: _SQL["settle_retry"],
    TaskStatus.FAILED: _SQL["settle_failure"],
}
_DELETE_STALE_LOCK = load_statements(__package__, "unique.sql")["delete_stale_lock"]


def settle(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed; the others had lost their lease."""
    succeeded = [outcome.id for outcome in outcomes if outcome.settlement.status is TaskStatus.SUCCESSFUL]
    locks = (yield _FIND_TASK_LOCKS(ids=hex_ids(succeeded))).rows if succeeded else ()
    yield BEGIN()
    result = yield _LOCK_OUTCOMES(fences=tuple((outcome.id.hex, outcome.lease_epoch) for outcome in outcomes))
    landed = {UUID(row[0]) for row in result.rows}
    for status, statement in _SETTLE.items():
        rows = [_values(o) for o in outcomes if o.id in landed and o.settlement.status is status]
        if rows:
            yield statement.many([{name: row[name] for name in statement.parameters} for row in rows])
    yield from _unlock([row for row in locks if UUID(row[1]) in landed])
    yield COMMIT()
    return list(landed)


def _values(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id.hex,
        "return_value": outcome.settlement.return_value,
        "errors": outcome.errors,
        "run_after": instant(outcome.run_after),
        "finished_at": instant(outcome.finished_at),
    }


def _unlock(locks: Sequence[Row]) -> Procedure[None]:
    """In key order, the order of everybody here."""
    if locks:
        yield _DELETE_STALE_LOCK.many(
            [{"key": key, "task_id": task_id} for key, task_id in sorted(map(tuple, locks))]
        )
