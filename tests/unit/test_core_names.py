"""The checks of a task's path and options."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from oxpull_async.core.names import (
    check_backend_name,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_run_after,
    check_task_path,
    check_timeout,
)
from oxpull_async.exceptions import InvalidArguments, InvalidTask

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
NAMES = [(check_task_path, 255), (check_queue_name, 128), (check_backend_name, 128)]


@pytest.mark.parametrize(("check", "longest"), NAMES)
def test_a_name_may_be_as_long_as_its_column_counted_in_characters(
    check: Callable[[object], str], longest: int
) -> None:
    assert check("é" * longest) == "é" * longest
    with pytest.raises(InvalidTask, match=f"{longest + 1} characters; at most {longest} can be stored"):
        check("é" * (longest + 1))


@pytest.mark.parametrize(("check", "longest"), NAMES)
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "must not be empty"),
        ("a\0b", "NUL character can't be stored; leave it out"),
        ("\ud800", "lone surrogate .* can't be stored"),
        (5, "must be a str, not 5"),
        (None, "must be a str, not None"),
    ],
)
def test_a_name_that_some_database_refuses_is_refused(
    check: Callable[[object], str], longest: int, name: object, complaint: str
) -> None:
    with pytest.raises(InvalidTask, match=complaint):
        check(name)


@pytest.mark.parametrize(("value", "expected"), [(-100, -100), (0, 0), (100, 100), (5.0, 5)])
def test_a_priority_is_a_whole_number(value: object, expected: int) -> None:
    priority = check_priority(value)

    assert priority == expected
    assert type(priority) is int


@pytest.mark.parametrize(
    "value",
    [-101, 101, 1.5, math.nan, math.inf, True, "5", None, 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_another_priority_is_refused(value: object) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number from -100 to 100, not"):
        check_priority(value)


@pytest.mark.parametrize("value", [1, 3, 32_767])
def test_max_attempts_is_what_the_column_holds(value: int) -> None:
    assert check_max_attempts(value) == value


@pytest.mark.parametrize("value", [0, -1, 32_768, True, 3.0, "3", None])
def test_other_max_attempts_are_refused(value: object) -> None:
    with pytest.raises(InvalidTask, match="max_attempts must be an int from 1 to 32767, not"):
        check_max_attempts(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.5, 0.5), (timedelta(minutes=1), 60.0), (31_557_600_000, 31_557_600_000.0)],
)
def test_a_timeout_is_a_duration(value: Any, expected: float) -> None:
    assert check_timeout(value) == expected


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "30", None, 31_557_600_001, timedelta(0)])
def test_another_timeout_is_refused(value: Any) -> None:
    with pytest.raises(InvalidTask, match="timeout must .*; for no timeout leave it out"):
        check_timeout(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 5, 4, 4, 2, 1, tzinfo=UTC),
        datetime(2026, 5, 4, 9, 32, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        3600,
        3600.0,
        timedelta(hours=1),
    ],
)
def test_run_after_is_an_instant_in_utc_or_a_duration_from_now(value: Any) -> None:
    instant = check_run_after(value, NOW)

    assert instant == datetime(2026, 5, 4, 4, 2, 1, tzinfo=UTC)
    assert instant.tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (datetime(2026, 5, 4), "has no time zone; give an aware datetime"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), "leaves the years 2 to 9998"),
        (datetime.min.replace(tzinfo=UTC), "leaves the years 2 to 9998"),
        (datetime(9999, 1, 1, tzinfo=UTC), "leaves the years 2 to 9998"),
        (10**12, "leaves the years 2 to 9998"),
        (timedelta.max, "leaves the years 2 to 9998"),
        (-1, "must not be negative"),
        ("2026-05-04", "takes an aware datetime or a duration"),
        (True, "takes an aware datetime or a duration"),
        (None, "takes an aware datetime or a duration"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_run_after_refuses_what_is_no_instant(value: Any, complaint: str) -> None:
    with pytest.raises(InvalidArguments, match=complaint):
        check_run_after(value, NOW)
