"""The statuses of rows, and how they move."""

from __future__ import annotations

import pytest

from oxpull_async.core.statuses import (
    CANCELLABLE,
    DISCARDABLE,
    OUTCOME_WRITABLE,
    PENDING,
    RETRYABLE,
    SETTLED,
    TRANSITIONS,
    BatchStatus,
    TaskStatus,
)


def test_statuses_are_spelled_as_they_are_stored_and_fit_their_column() -> None:
    assert " ".join(TaskStatus) == "READY RUNNING SUCCESSFUL FAILED LOST DISCARDED WAITING"
    assert " ".join(BatchStatus) == "OPEN SEALED COMPLETE"
    assert max(map(len, [*TaskStatus, *BatchStatus])) <= 10
    assert f"{TaskStatus.READY}" == "READY"


def test_a_row_is_pending_settled_or_waiting() -> None:
    assert PENDING | SETTLED | {TaskStatus.WAITING} == set(TaskStatus)
    assert not PENDING & SETTLED


def test_every_status_has_its_moves() -> None:
    assert set(TRANSITIONS) == set(TaskStatus)


@pytest.mark.parametrize(
    ("target", "sources"),
    [
        (TaskStatus.READY, RETRYABLE | {TaskStatus.WAITING, TaskStatus.RUNNING}),
        (TaskStatus.RUNNING, {TaskStatus.READY}),
        (TaskStatus.SUCCESSFUL, OUTCOME_WRITABLE),
        (TaskStatus.FAILED, OUTCOME_WRITABLE),
        (TaskStatus.LOST, {TaskStatus.RUNNING}),
        (TaskStatus.DISCARDED, DISCARDABLE | CANCELLABLE),
    ],
)
def test_a_status_is_reached_from_these_and_no_others(target: TaskStatus, sources: frozenset[TaskStatus]) -> None:
    assert {source for source, targets in TRANSITIONS.items() if target in targets} == sources
