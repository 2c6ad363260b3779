"""Durations as numbers of seconds and as timedeltas."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from oxpull_async.core.durations import seconds


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0.0), (3, 3.0), (0.25, 0.25), (timedelta(minutes=2, milliseconds=5), 120.005)]
)
def test_a_duration_becomes_seconds(value: Any, expected: float) -> None:
    number = seconds(value, "lease")

    assert number == expected
    assert type(number) is float


@pytest.mark.parametrize("value", [True, "3", None, 3j, [3]])
def test_what_is_no_duration_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^lease must be .* not {type(value).__name__}$"):
        seconds(value, "lease")


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, 10**400, -(10**400), timedelta(days=-1)])
def test_what_no_clock_can_wait_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="^lease must"):
        seconds(value, "lease")
