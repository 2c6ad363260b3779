"""Outcomes: what attempts ended with, written many at once and fenced one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.ports import Outcome

_SQL = load_statements(__package__, "outcomes.sql")
_SETTLE = _SQL["settle"]
_SETTLE_SUCCESSES = _SQL["settle_successes"]
_SNOOZE = _SQL["snooze"]


def settle(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed; the others had lost their lease, or somebody keeps their rows locked."""
    values: dict[str, list[Any]] = {
        "ids": [outcome.id for outcome in outcomes],
        "epochs": [outcome.lease_epoch for outcome in outcomes],
        "return_values": [outcome.settlement.return_value for outcome in outcomes],
        "finished_ats": [outcome.finished_at for outcome in outcomes],
    }
    if all(outcome.settlement.status is TaskStatus.SUCCESSFUL and outcome.errors == "[]" for outcome in outcomes):
        result = yield _SETTLE_SUCCESSES(**values)
        return [row[0] for row in result.rows]
    result = yield _SETTLE(
        **values,
        statuses=[str(outcome.settlement.status) for outcome in outcomes],
        errors=[outcome.errors for outcome in outcomes],
        run_afters=[outcome.run_after for outcome in outcomes],
        next_epochs=[outcome.lease_epoch + outcome.takes_row_away for outcome in outcomes],
    )
    return [row[0] for row in result.rows]


def snooze(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed."""
    result = yield _SNOOZE(
        ids=[outcome.id for outcome in outcomes],
        epochs=[outcome.lease_epoch for outcome in outcomes],
        run_afters=[outcome.run_after for outcome in outcomes],
    )
    return [row[0] for row in result.rows]
