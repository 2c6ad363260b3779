"""Outcomes: what attempts ended with, written many at once and fenced one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import id_array, text
from oxpull_async.ports import Outcome

_SQL = load_statements(__package__, "outcomes.sql")
_SETTLE = _SQL["settle"]
_SNOOZE = _SQL["snooze"]
_UNLOCK = _SQL["unlock"]


def settle(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed; the others had lost their lease."""
    landed: list[Outcome] = []
    for outcome in outcomes:
        result = yield _SETTLE(**_values(outcome))
        if result.count:
            landed.append(outcome)
    succeeded = [outcome.id for outcome in landed if outcome.settlement.status is TaskStatus.SUCCESSFUL]
    if succeeded:
        yield _UNLOCK(ids=id_array(succeeded))
    return [outcome.id for outcome in landed]


def snooze(outcomes: Sequence[Outcome]) -> Procedure[list[UUID]]:
    """The ids that landed."""
    landed: list[UUID] = []
    for outcome in outcomes:
        result = yield _SNOOZE(id=outcome.id.hex, epoch=outcome.lease_epoch, run_after=text(outcome.run_after))
        if result.count:
            landed.append(outcome.id)
    return landed


def _values(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id.hex,
        "epoch": outcome.lease_epoch,
        "next_epoch": outcome.lease_epoch + outcome.takes_row_away,
        "status": str(outcome.settlement.status),
        "return_value": outcome.settlement.return_value,
        "errors": outcome.errors,
        "run_after": text(outcome.run_after),
        "finished_at": text(outcome.finished_at),
    }
