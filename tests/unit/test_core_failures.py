"""The records that rows keep of failed attempts."""

from __future__ import annotations

import datetime
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxpull_async.core.failures import (
    MAX_TRACEBACK_BYTES,
    TASK_ABANDONED_PATH,
    TASK_TIMEOUT_PATH,
    TRACEBACK_HEAD_BYTES,
    abandoned_record,
    cap_traceback,
    class_path,
    error_record,
)

MARKER = re.compile(r"\n\[\.\.\. (\d+) bytes left out here \.\.\.\]\n")


class Custom(Exception):
    """An exception of somebody's own."""


class Broken(Exception):
    """An exception whose own code fails."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_a_record_has_exactly_the_two_keys_that_readers_index() -> None:
    record = error_record(raised(ValueError("boom")))

    assert sorted(record) == ["exception_class_path", "traceback"]
    assert record["exception_class_path"] == "builtins.ValueError"
    assert record["traceback"].startswith("Traceback (most recent call last):")
    assert record["traceback"].endswith("ValueError: boom\n")


def test_a_record_tells_the_whole_chain() -> None:
    record = error_record(raised(Custom("outer"), raised(KeyError("inner"))))

    assert record["exception_class_path"] == f"{__name__}.Custom"
    assert record["traceback"].index("KeyError: 'inner'") < record["traceback"].index("Custom: outer")


def test_a_nested_class_is_named_by_its_qualified_name() -> None:
    class Inner(Exception):
        pass

    assert class_path(Inner).endswith("test_a_nested_class_is_named_by_its_qualified_name.<locals>.Inner")


@pytest.mark.parametrize(
    ("name", "stored"), [("TaskTimeout", TASK_TIMEOUT_PATH), ("TaskAbandoned", TASK_ABANDONED_PATH)]
)
def test_errors_that_both_sides_know_are_stored_under_the_name_the_other_side_imports(name: str, stored: str) -> None:
    ours = type(name, (Exception,), {"__module__": "oxpull_async.exceptions"})

    assert class_path(ours) == stored == f"django_ox.exceptions.{name}"


def test_a_record_is_made_even_of_an_exception_that_cant_be_printed() -> None:
    assert "Broken" in error_record(raised(Broken()))["traceback"]


def test_a_record_is_made_even_where_formatting_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: BaseException) -> list[str]:
        raise RecursionError

    monkeypatch.setattr("traceback.format_exception", fail)

    text = error_record(ValueError("x"))["traceback"]

    assert text == "ValueError, whose traceback couldn't be formatted (RecursionError)\n"


def test_a_long_message_is_stored_in_exactly_the_bytes_allowed() -> None:
    text = error_record(raised(ValueError("x" * 50_000)))["traceback"]

    assert len(text.encode()) == 16_384
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("xxx\n")


def test_the_marker_tells_how_many_bytes_are_gone_after_the_head() -> None:
    capped = cap_traceback("h" * 50_000)

    found = MARKER.search(capped)
    assert found and found.start() == TRACEBACK_HEAD_BYTES
    assert len(capped) - len(found[0]) + int(found[1]) == 50_000


@settings(deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.integers(0, 120_000),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
def test_a_capped_text_fits_and_splits_no_character(unit: str, size: int, shift: str) -> None:
    whole = shift + unit * (size // len(unit.encode()))

    capped = cap_traceback(whole)

    data = capped.encode()
    if len(whole.encode()) <= MAX_TRACEBACK_BYTES:
        assert capped == whole
        return
    assert MAX_TRACEBACK_BYTES - 7 <= len(data) <= MAX_TRACEBACK_BYTES
    found = [
        part for part in MARKER.finditer(capped) if TRACEBACK_HEAD_BYTES - 4 < len(capped[: part.start()].encode())
    ]
    head, tail = capped[: found[0].start()], capped[found[0].end() :]
    assert whole.startswith(head) and whole.endswith(tail)
    assert len(head.encode()) <= TRACEBACK_HEAD_BYTES
    assert len(head.encode()) + int(found[0][1]) + len(tail.encode()) == len(whole.encode())


@pytest.mark.parametrize("over", [*range(1, 130), *range(880, 1020), *range(9_870, 10_010)])
def test_the_count_is_right_where_it_gains_a_digit(over: int) -> None:
    size = MAX_TRACEBACK_BYTES + over

    capped = cap_traceback("x" * size)

    found = MARKER.search(capped)
    assert found and len(capped) == MAX_TRACEBACK_BYTES
    assert len(capped) - len(found[0]) + int(found[1]) == size


def test_a_record_holds_nothing_that_a_database_refuses() -> None:
    record = error_record(raised(ValueError("nul \0 lone \ud800 fine é😀")))

    assert "nul \\x00 lone \\ud800 fine é😀" in record["traceback"]
    assert "\\u0000" not in json.dumps(record)
    json.dumps(record, ensure_ascii=False).encode("utf-8")


def test_a_lost_row_names_the_worker_that_held_it() -> None:
    expired = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)

    record = abandoned_record("host-17-abcdefgh", expired)

    assert record["exception_class_path"] == "django_ox.exceptions.TaskAbandoned"
    assert "host-17-abcdefgh ran out at 2026-05-04 03:02:01+00:00" in record["traceback"]
    assert "(unknown) ran out during" in abandoned_record(None)["traceback"]
