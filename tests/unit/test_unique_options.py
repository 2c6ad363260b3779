"""What ``Unique`` may say, and what is refused when it's declared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from oxpull_async import InvalidTask, Unique
from oxpull_async.core.uniqueness import HoldTerms


def test_saying_nothing_is_plain_and_shares_the_reference_s_locks() -> None:
    assert Unique().is_plain
    assert Unique().terms is None


def test_a_choice_of_arguments_alone_is_plain_too() -> None:
    assert Unique(by=("a",)).is_plain
    assert Unique(by=lambda a: a).is_plain


@pytest.mark.parametrize(
    "options",
    [
        {"hold": "ready"},
        {"window": 5},
        {"on_duplicate": "raise"},
        {"on_duplicate": "reschedule"},
        {"on_duplicate": "replace", "by": ("a",)},
        {"on_duplicate": "rerun"},
    ],
)
def test_anything_more_is_not_plain(options: dict[str, Any]) -> None:
    assert not Unique(**options).is_plain


def test_a_hold_has_terms_of_its_own() -> None:
    assert Unique(hold="ready").terms == HoldTerms("ready", None)
    assert Unique(window=timedelta(minutes=1)).terms == HoldTerms("pending", 60.0)
    assert Unique(hold="ready", window=2).terms == HoldTerms("ready", 2.0)
    assert Unique(on_duplicate="rerun").terms is None


def test_durations_are_normalised_to_seconds() -> None:
    unique = Unique(on_duplicate="reschedule", max_delay=timedelta(minutes=2), window=timedelta(hours=1))

    assert (unique.max_delay, unique.window) == (120.0, 3600.0)
    assert unique.max_delay_seconds == 120.0


def test_names_may_come_as_any_sequence() -> None:
    assert Unique(by=["a", "b"]).by == ("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "order_id"}, "by="),
        ({"by": ()}, "by="),
        ({"by": (1,)}, "by="),
        ({"by": 5}, "by="),
        ({"hold": "running"}, "hold="),
        ({"hold": None}, "hold="),
        ({"on_duplicate": "ignore"}, "on_duplicate="),
        ({"window": 0}, "window="),
        ({"window": -1}, "window="),
        ({"window": "5"}, "window="),
        ({"window": float("nan")}, "window="),
        ({"window": 1e300}, "window="),
        ({"on_duplicate": "reschedule", "max_delay": 0}, "max_delay="),
        ({"max_delay": 5}, "max_delay"),
        ({"on_duplicate": "rerun", "max_delay": 5}, "max_delay"),
        ({"on_duplicate": "replace"}, "by="),
        ({"on_duplicate": "rerun", "hold": "ready"}, 'on_duplicate="replace"'),
        ({"on_duplicate": "rerun", "window": 5}, "window"),
    ],
)
def test_what_can_t_be_kept_is_refused_at_the_declaration(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask) as refusal:
        Unique(**options)

    assert "Unique" in str(refusal.value)
    assert words in str(refusal.value)
