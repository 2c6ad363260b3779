"""Who holds a key and until when, and what a duplicate does: pure decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.uniqueness import (
    Deed,
    HoldTerms,
    LateRerun,
    OnDuplicate,
    capped_run_after,
    decide_deed,
    decide_late_rerun,
    is_pending,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=10)
SETTLED = ("SUCCESSFUL", "FAILED", "LOST", "DISCARDED")
ANY = (*TaskStatus, "UNKNOWN")


def test_a_lock_is_held_while_its_task_is_pending() -> None:
    assert {status for status in ANY if is_pending(status)} == {"READY", "RUNNING"}


@pytest.mark.parametrize("status", ANY)
def test_a_hold_goes_by_the_status_of_its_task(status: str) -> None:
    assert HoldTerms("pending", None).is_held(status, None, NOW) is (status in ("READY", "RUNNING"))
    assert HoldTerms("ready", None).is_held(status, None, NOW) is (status == "READY")


@pytest.mark.parametrize("status", ANY)
def test_within_its_window_a_key_is_held_whatever_has_become_of_its_task(status: str) -> None:
    assert HoldTerms("pending", 10).is_held(status, SOON, NOW)
    assert HoldTerms("ready", 10).is_held(status, SOON, SOON - timedelta(microseconds=1))


def test_a_window_that_is_over_holds_nothing() -> None:
    assert not HoldTerms("pending", 10).is_held("SUCCESSFUL", SOON, SOON)
    assert HoldTerms("pending", 10).is_held("RUNNING", SOON, SOON)


def test_a_row_that_is_gone_holds_nothing() -> None:
    assert not HoldTerms("pending", 10).is_held(None, SOON, NOW)


def test_the_window_begins_with_the_enqueue() -> None:
    assert HoldTerms("pending", 10).held_until(NOW) == SOON
    assert HoldTerms("ready", None).held_until(NOW) is None


@pytest.mark.parametrize(
    ("on_duplicate", "if_ready", "if_running"),
    [
        ("return", Deed.RETURN, Deed.RETURN),
        ("raise", Deed.RAISE, Deed.RAISE),
        ("reschedule", Deed.MOVE, Deed.RETURN),
        ("replace", Deed.REPLACE, Deed.RETURN),
        ("rerun", Deed.REPLACE, Deed.RUN_AGAIN),
    ],
)
def test_what_a_duplicate_does(on_duplicate: OnDuplicate, if_ready: Deed, if_running: Deed) -> None:
    assert decide_deed(on_duplicate, "READY") is if_ready
    assert decide_deed(on_duplicate, "RUNNING") is if_running


@pytest.mark.parametrize("status", SETTLED)
def test_what_has_ended_is_never_changed(status: str) -> None:
    assert decide_deed("return", status) is Deed.RETURN
    assert decide_deed("reschedule", status) is Deed.RETURN
    assert decide_deed("replace", status) is Deed.RETURN
    assert decide_deed("raise", status) is Deed.RAISE


def test_a_delay_ends_no_later_than_its_cap() -> None:
    late = NOW + timedelta(hours=1)

    assert capped_run_after(late, NOW, 10) == SOON
    assert capped_run_after(SOON, NOW, 100) == SOON
    assert capped_run_after(late, NOW, None) == late
    assert capped_run_after(None, NOW, 10) is None


def test_a_late_rerun_gives_way_to_what_was_enqueued_after_it() -> None:
    assert decide_late_rerun(NOW, "READY", SOON) is LateRerun.DROP
    assert decide_late_rerun(NOW, "RUNNING", SOON) is LateRerun.DROP
    assert decide_late_rerun(SOON, "READY", NOW) is LateRerun.REPLACE
    assert decide_late_rerun(SOON, "RUNNING", NOW) is LateRerun.FOLLOW
