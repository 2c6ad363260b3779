"""How long a failed attempt waits."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxpull_async.core.backoff import (
    MAX_DELAY_SECONDS,
    Backoff,
    Delay,
    DelaySource,
    decide_delay,
    default_backoff,
    default_delay,
    refuse_answer,
)


def test_delays_double_from_five_seconds_to_ten_minutes() -> None:
    delays = [default_backoff(attempts) for attempts in range(1, 10)]

    assert delays == [5, 10, 20, 40, 80, 160, 320, 600, 600]


@given(st.integers(0, 40_000), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_delay_is_never_beyond_its_maximum(attempts: int, initial: float, maximum: float) -> None:
    assert 0 <= default_backoff(attempts, initial, maximum) <= maximum


def test_a_backoff_takes_seconds_and_timedeltas_and_keeps_seconds() -> None:
    backoff = Backoff(initial=timedelta(seconds=2), maximum=3)

    assert (backoff.initial, backoff.maximum) == (2.0, 3.0)
    assert [backoff.delay_after(attempts) for attempts in (1, 2)] == [2.0, 3.0]
    assert Backoff() == Backoff(5, 600)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 1e12, True, "5"])
def test_a_backoff_refuses_what_is_no_delay(bad: float) -> None:
    with pytest.raises((TypeError, ValueError), match="backoff's initial delay must"):
        Backoff(initial=bad)


@pytest.mark.parametrize(
    ("answer", "delay"),
    [
        (7, 7.0),
        (1.5, 1.5),
        (0, 0.0),
        (timedelta(minutes=3), 180.0),
        (MAX_DELAY_SECONDS, MAX_DELAY_SECONDS),
    ],
)
def test_a_tasks_own_answer_is_taken(answer: object, delay: float) -> None:
    assert decide_delay(answer, 1, Backoff()) == Delay(delay, DelaySource.TASK)


def test_a_task_that_answers_none_fails_now() -> None:
    assert decide_delay(None, 1, Backoff()) == Delay(None, DelaySource.DECLINED)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (True, "not bool"),
        (-1, "negative"),
        (timedelta(seconds=-1), "negative"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        (10**400, "finite"),
        (MAX_DELAY_SECONDS * 2, "at most 31557600000 seconds"),
        (timedelta.max, "at most 31557600000 seconds"),
        ("5", "of type str"),
        (object(), "of type object"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_that_cant_be_used_gives_way_to_the_default(answer: object, complaint: str) -> None:
    delay = decide_delay(answer, 2, Backoff())

    assert (delay.seconds, delay.source) == (10.0, DelaySource.POLICY_ERROR)
    assert complaint in delay.complaint


def test_a_backoff_that_raised_gives_way_to_the_default() -> None:
    assert refuse_answer("it raised", 3, Backoff()) == Delay(20.0, DelaySource.POLICY_ERROR, "it raised")


def test_a_task_without_a_backoff_has_the_default() -> None:
    assert default_delay(1, Backoff()) == Delay(5.0, DelaySource.DEFAULT)
