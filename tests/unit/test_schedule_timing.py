"""Ticks on the wall clock of a zone, made instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oxpull_async.core.cron import parse_cron
from oxpull_async.core.schedules import LONGEST_INTERVAL, Interval, Timing, find_zone, make_timing
from oxpull_async.exceptions import InvalidSchedule

NEW_YORK = ZoneInfo("America/New_York")
MINUTE = timedelta(minutes=1)
SPRING = datetime(2026, 3, 8, tzinfo=NEW_YORK)
AUTUMN = datetime(2026, 11, 1, tzinfo=NEW_YORK)


def cron(text: str, zone: ZoneInfo | timezone = NEW_YORK) -> Timing:
    return Timing(parse_cron(text), zone)


def every(seconds: float, phase: float = 0) -> Timing:
    return Timing(Interval(timedelta(seconds=seconds), timedelta(seconds=phase)), NEW_YORK)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def fired(timing: Timing, day: datetime) -> list[str]:
    """The instants that a dispatcher that looks once a minute fires on that local day, as the log lets it."""
    at, end, last, found = day.astimezone(UTC), (day + timedelta(days=1)).astimezone(UTC), None, list[datetime]()
    while at < end:
        tick = timing.due(at)
        if tick is not None and tick >= day and (last is None or tick > last):
            last = tick
            found.append(tick)
        at += MINUTE
    return [f"{tick:%H:%M}" for tick in found]


def test_a_daily_tick_in_the_repeated_hour_fires_twice():
    assert fired(cron("30 1 * * *"), AUTUMN) == ["05:30", "06:30"]


def test_an_hourly_tick_fires_in_both_passes_of_the_repeated_hour():
    assert fired(cron("0 * * * *"), AUTUMN)[:4] == ["04:00", "05:00", "06:00", "07:00"]


def test_every_two_hours_waits_three_where_an_hour_repeats():
    assert fired(cron("0 */2 * * *"), AUTUMN)[:3] == ["04:00", "07:00", "09:00"]
    assert fired(every(7200), AUTUMN)[:3] == ["04:00", "07:00", "09:00"]


def test_a_daily_tick_in_the_skipped_hour_fires_once_an_hour_later():
    assert fired(cron("30 2 * * *"), SPRING) == ["07:30"]


def test_every_two_hours_fires_at_three_and_four_where_an_hour_is_skipped():
    assert fired(every(7200), SPRING)[:4] == ["05:00", "07:00", "08:00", "10:00"]


def test_nothing_is_due_while_the_latest_wall_time_is_one_that_the_clock_skips():
    daily = cron("30 2 * * *")

    assert daily.due(utc(2026, 3, 8, 7, 15)) is None
    assert daily.latest(utc(2026, 3, 8, 7, 15)) == utc(2026, 3, 7, 7, 30)


def test_an_interval_is_counted_on_the_local_clock_and_shifted_by_its_phase():
    hourly = every(3600, phase=600)

    assert hourly.latest(utc(2026, 6, 1, 12, 30)) == utc(2026, 6, 1, 12, 10)
    assert hourly.latest(utc(2026, 6, 1, 12, 5)) == utc(2026, 6, 1, 11, 10)
    assert every(86_400).latest(utc(2026, 6, 1, 12)) == utc(2026, 6, 1, 4)


def test_an_instant_of_any_zone_is_the_same_instant():
    noon = cron("0 12 * * *")
    there = datetime(2026, 6, 1, 22, 0, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    assert noon.latest(there) == noon.latest(there.astimezone(UTC)) == utc(2026, 6, 1, 16)
    with pytest.raises(ValueError, match="time zone"):
        noon.latest(datetime(2026, 6, 1))


TIMINGS = st.one_of(
    st.sampled_from(["30 1 * * *", "0 */2 * * *", "30 2 * * *", "10,40 1-3 * * *", "45 * * * *", "59 23 * * sun"]).map(
        parse_cron
    ),
    st.sampled_from([900, 2400, 2700, 3600, 7200]).map(lambda seconds: Interval(timedelta(seconds=seconds))),
)
ZONES = st.sampled_from(["America/New_York", "Antarctica/Troll", "Australia/Lord_Howe", "Europe/Dublin"]).map(ZoneInfo)
EDGES = st.sampled_from([
    utc(2026, 3, 8, 7), utc(2026, 11, 1, 6), utc(2026, 3, 29, 1), utc(2026, 10, 25, 1),
    utc(2026, 4, 4, 15), utc(2026, 10, 3, 15, 30),
])  # fmt: skip


@given(TIMINGS, ZONES, EDGES, st.integers(-300, 200))
@example(Interval(timedelta(seconds=2400)), NEW_YORK, utc(2026, 3, 8, 7), 1)
def test_the_next_tick_is_the_first_minute_at_which_one_becomes_due(trigger, zone, edge, minutes):
    timing, at = Timing(trigger, zone), edge + minutes * MINUTE
    told, minute = timing.next(at), at + MINUTE

    while minute < told and timing.due(minute) != minute:
        minute += MINUTE

    assert minute == told


def test_the_next_tick_after_a_tick_is_a_later_one():
    at, found = utc(2026, 10, 30), []
    for _ in range(6):
        at = cron("30 1 * * *").next(at)
        found.append(f"{at:%d %H:%M}")

    assert found == ["30 05:30", "31 05:30", "01 05:30", "01 06:30", "02 06:30", "03 06:30"]


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({}, "either cron= or every="),
        ({"cron": "* * * * *", "every": 5}, "not both"),
        ({"cron": "* * * * *", "phase": 5}, "goes with every="),
        ({"cron": "61 * * * *"}, "minute '61' is outside 0 to 59"),
        ({"cron": 5}, "is a text"),
        ({"every": 0.5}, "from 1 to 62135596800 seconds"),
        ({"every": 62_135_596_801}, "from 1 to 62135596800 seconds"),
        ({"every": "5"}, "number of seconds or a timedelta"),
        ({"every": -5}, "negative"),
        ({"every": float("nan")}, "finite"),
        ({"every": 60, "phase": 60}, "shorter than the interval"),
        ({"every": 60, "phase": -1}, "negative"),
        ({"every": 60, "timezone": "Middle/Earth"}, "no time zone 'Middle/Earth'"),
        ({"every": 60, "timezone": None}, "no time zone None"),
    ],
)
def test_a_declaration_that_cant_be_used_is_told_what_is_wrong(given_, words):
    with pytest.raises(InvalidSchedule, match=words):
        make_timing(**{"cron": None, "every": None, "phase": 0, "timezone": "UTC"} | given_)


def test_the_longest_interval_has_its_ticks():
    timing = make_timing(cron=None, every=LONGEST_INTERVAL, phase=0, timezone="UTC")

    assert timing.latest(utc(2026, 1, 1)) == utc(1970, 1, 1)


def test_a_zone_is_given_by_name_or_as_it_is():
    assert find_zone("UTC") is UTC
    assert find_zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert find_zone(NEW_YORK) is NEW_YORK


def test_an_expression_over_a_missing_leap_year_is_found():
    leap_day = cron("0 0 29 2 *", UTC)

    assert leap_day.next(utc(2097, 1, 1)) == utc(2104, 2, 29)
    assert leap_day.latest(utc(2103, 1, 1)) == utc(2096, 2, 29)
