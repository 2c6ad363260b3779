"""The texts in which SQLite keeps instants, and what a URL says of its file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxpull_async.drivers.sqlite._rows import instant, modifier, stored_instant, text
from oxpull_async.drivers.sqlite.pool import database_path
from oxpull_async.exceptions import InvalidSettings

instants = st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC))


def test_an_instant_is_written_as_django_writes_it():
    moment = datetime(2026, 11, 30, 18, 35, 0, 680320, tzinfo=timezone(timedelta(hours=2)))

    assert text(moment) == "2026-11-30 16:35:00.680320"


def test_a_fraction_of_zero_is_left_out():
    assert text(datetime(2030, 1, 1, 12, tzinfo=UTC)) == "2030-01-01 12:00:00"


@pytest.mark.parametrize("fraction", ["", ".5", ".500", ".500000"])
def test_every_spelling_of_the_fraction_is_read(fraction: str):
    expected = datetime(2026, 11, 30, 16, 34, 15, 500_000 if fraction else 0, tzinfo=UTC)

    assert instant(f"2026-11-30 16:34:15{fraction}") == expected


def test_an_instant_that_a_converter_has_made_is_read_too():
    moment = datetime(2026, 11, 30, 16, 34, 15)

    assert stored_instant(moment) == moment.replace(tzinfo=UTC)


def test_no_instant_is_null_both_ways():
    assert text(None) is None
    assert instant(None) is None


@given(instants)
def test_what_is_written_is_read_back(moment: datetime):
    assert instant(text(moment)) == moment


@given(instants, instants)
def test_texts_are_in_the_order_of_their_instants(one: datetime, other: datetime):
    assert (str(text(one)) < str(text(other))) == (one < other)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(300, "+300.000 seconds"), (1.5, "+1.500 seconds"), (-0.25, "-0.250 seconds")]
)
def test_a_length_of_time_keeps_its_milliseconds(seconds: float, expected: str):
    assert modifier(seconds) == expected


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///relative.db", "relative.db"),
        ("sqlite:///folder/relative.db", "folder/relative.db"),
        ("sqlite:////var/lib/absolute.db", "/var/lib/absolute.db"),
        ("sqlite:////tmp/with%20space%3F.db", "/tmp/with space?.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite://", ":memory:"),
    ],
)
def test_a_url_names_a_file(url: str, path: str):
    assert database_path(url) == path


@pytest.mark.parametrize(
    "url", ["sqlite://relative.db", "sqlite://host/file.db", "sqlite:///a.db?mode=ro", "sqlite:///a.db#x", "sqlite:///"]
)
def test_a_url_that_says_anything_else_is_refused(url: str):
    with pytest.raises(InvalidSettings):
        database_path(url)
