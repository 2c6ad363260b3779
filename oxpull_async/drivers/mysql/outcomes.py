"""Outcomes: what attempts ended with, written many at once and fenced one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql._rows import document, hex_ids, instant, lock_document
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT
from oxpull_async.ports import Outcome

_SQL = load_statements(__package__, "outcomes.sql")
_FIND_TASK_LOCKS = _SQL["find_task_locks"]
_LOCK_TASK_LOCKS = _SQL["lock_task_locks"]
_LOCK_OUTCOMES = _SQL["lock_outcomes"]
_WRITE_OUTCOMES = _SQL["write_outcomes"]
_LOCK_SNOOZED = _SQL["lock_snoozed"]
_SNOOZE = _SQL["snooze"]
_DELETE_LOCKS = load_statements(__package__, "unique.sql")["delete_locks"]


def settle(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed; the others had lost their lease, or somebody keeps their rows locked."""
    locks = yield from _locks_of_successes(outcomes)
    yield BEGIN()
    result = yield _LOCK_OUTCOMES(fences=_fences(outcomes))
    landed = {UUID(row[0]) for row in result.rows}
    if landed:
        yield _WRITE_OUTCOMES(outcomes=document([_values(o) for o in outcomes if o.id in landed]))
        yield from _delete_locks([lock for lock in locks if UUID(lock[1]) in landed])
    yield COMMIT()
    return list(landed)


def _locks_of_successes(outcomes: Sequence[Outcome]) -> Procedure[Sequence[Row]]:
    ids = [outcome.id for outcome in outcomes if outcome.settlement.status is TaskStatus.SUCCESSFUL]
    if not ids:
        return ()
    return (yield _FIND_TASK_LOCKS(ids=hex_ids(ids))).rows


def _delete_locks(locks: Sequence[Row]) -> Procedure[None]:
    if not locks:
        return
    locked = yield _LOCK_TASK_LOCKS(keys=tuple(str(lock[0]) for lock in locks))
    keys = {row[0] for row in locked.rows}
    free = [lock for lock in locks if lock[0] in keys]
    if free:
        yield _DELETE_LOCKS(locks=lock_document(free))


def _values(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id.hex,
        "status": str(outcome.settlement.status),
        "return_value": outcome.settlement.return_value,
        "errors": outcome.errors,
        "run_after": instant(outcome.run_after),
        "finished_at": instant(outcome.finished_at),
        "next_epoch": outcome.lease_epoch + outcome.takes_row_away,
    }


def snooze(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed."""
    yield BEGIN()
    result = yield _LOCK_SNOOZED(fences=_fences(outcomes))
    landed = {UUID(row[0]) for row in result.rows}
    if landed:
        yield _SNOOZE(outcomes=document([_values(outcome) for outcome in outcomes if outcome.id in landed]))
    yield COMMIT()
    return list(landed)


def _fences(outcomes: Sequence[Outcome]) -> tuple[tuple[str, int], ...]:
    return tuple((outcome.id.hex, outcome.lease_epoch) for outcome in outcomes)
