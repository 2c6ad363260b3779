"""What becomes of a row whose attempt has ended."""

from __future__ import annotations

from typing import Any

import pytest

from oxpull_async.core.settlements import Settlement, decide_failure, may_retry
from oxpull_async.core.statuses import OUTCOME_WRITABLE, TRANSITIONS, TaskStatus

ERROR = {"exception_class_path": "builtins.ValueError", "traceback": "…"}


def test_a_success_carries_a_value_and_no_error() -> None:
    assert Settlement.success("[1]") == Settlement(TaskStatus.SUCCESSFUL, "[1]", None, None)
    assert Settlement.success(None).return_value is None


@pytest.mark.parametrize(
    ("attempts", "max_attempts", "delay", "expected"),
    [
        (1, 3, 5.0, Settlement.retry(ERROR, 5.0)),
        (2, 3, 0.0, Settlement.retry(ERROR, 0.0)),
        (3, 3, 5.0, Settlement.failure(ERROR)),
        (4, 3, 5.0, Settlement.failure(ERROR)),
        (1, 1, 5.0, Settlement.failure(ERROR)),
        (1, 3, None, Settlement.failure(ERROR)),
    ],
)
def test_a_failed_attempt_is_retried_while_budget_and_task_allow(
    attempts: int, max_attempts: int, delay: float | None, expected: Settlement
) -> None:
    settled = decide_failure(ERROR, attempts=attempts, max_attempts=max_attempts, delay_seconds=delay)

    assert settled == expected
    assert settled.finishes is (settled.status is TaskStatus.FAILED)


def test_the_budget_is_spent_when_as_many_attempts_are_made() -> None:
    assert [may_retry(attempts, 3) for attempts in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": TaskStatus.SUCCESSFUL, "error": ERROR},
        {"status": TaskStatus.SUCCESSFUL, "delay_seconds": 1.0},
        {"status": TaskStatus.FAILED},
        {"status": TaskStatus.FAILED, "error": ERROR, "return_value": "1"},
        {"status": TaskStatus.FAILED, "error": ERROR, "delay_seconds": 1.0},
        {"status": TaskStatus.READY, "error": ERROR},
        {"status": TaskStatus.READY},
        {"status": TaskStatus.LOST, "error": ERROR},
        {"status": TaskStatus.DISCARDED},
        {"status": TaskStatus.RUNNING},
    ],
)
def test_fields_that_dont_belong_together_make_no_settlement(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="."):
        Settlement(**fields)


def test_every_settlement_is_a_legal_move_from_a_running_row() -> None:
    made = [Settlement.success(None), Settlement.retry(ERROR, 1.0), Settlement.failure(ERROR)]
    made += [Settlement.discard(ERROR), Settlement.snooze(1.0)]

    for status in OUTCOME_WRITABLE:
        assert {settlement.status for settlement in made} <= TRANSITIONS[status]


def test_only_a_snooze_refunds_its_attempt() -> None:
    assert Settlement.snooze(1.0).refunds
    assert not Settlement.retry(ERROR, 1.0).refunds
    assert not Settlement.success(None).refunds
