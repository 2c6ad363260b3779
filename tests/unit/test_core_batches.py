"""Tallies and endings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxpull_async.batches.models import progress_of
from oxpull_async.core.batches import Ending, Tally, judge
from oxpull_async.core.statuses import SETTLED, TaskStatus

STATUSES = [*TaskStatus, "PARKED", None]
tallies = st.dictionaries(st.sampled_from(STATUSES), st.integers(1, 5)).map(Tally)


@pytest.mark.parametrize(
    ("statuses", "ending"),
    [
        ({}, Ending(0, 0, 0)),
        ({"SUCCESSFUL": 2}, Ending(2, 0, 0)),
        ({"SUCCESSFUL": 1, "FAILED": 1}, Ending(2, 1, 0)),
        ({"SUCCESSFUL": 1, "LOST": 1, "DISCARDED": 1, None: 1}, Ending(4, 0, 3)),
        ({"SUCCESSFUL": 1, "PARKED": 1}, None),
        ({"WAITING": 1}, None),
    ],
)
def test_an_ending_is_what_the_rows_say(statuses: dict[str | None, int], ending: Ending | None) -> None:
    assert judge(Tally(statuses), None) == ending
    assert judge(Tally(statuses), sum(statuses.values())) == ending


def test_only_a_clean_ending_is_a_success() -> None:
    assert Ending(2, 0, 0).is_success
    assert not Ending(2, 1, 0).is_success
    assert not Ending(2, 0, 1).is_success


@given(tallies, st.booleans())
def test_nothing_is_counted_twice_or_lost(tally: Tally, is_sealed: bool) -> None:
    progress = progress_of(tally.members if is_sealed else None, tally)

    assert progress.total == tally.members == progress.finished + progress.pending
    assert progress.total == progress.pending + progress.succeeded + progress.failed + progress.unattributed
    settled = sum(n for status, n in tally.by_status.items() if status is None or status in SETTLED)
    assert (judge(tally, None) is None) == (settled < tally.members)
