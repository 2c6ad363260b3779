"""Every process derives the same ticks, ours and the reference's: else both would run one tick each."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django.utils import timezone
from django_ox.cron import CronExpression
from django_ox.schedules import IntervalTrigger

from oxpull_async.core.cron import parse_cron
from oxpull_async.core.schedules import Interval, Timing, Trigger
from oxpull_async.exceptions import InvalidSchedule
from tests.scale import rounds

pytestmark = pytest.mark.timeout(rounds(small=180, full=3_000))

EXPRESSIONS = rounds(small=1_500, full=40_000)
INSTANTS = 12
# Half an hour, two hours, a whole day, at midnight, only in Ramadan, backwards in winter, and no change at all.
TWISTED = [
    "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "America/Asuncion", "Africa/Casablanca",
    "Europe/Dublin", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "UTC", "America/Sao_Paulo", "Asia/Gaza",
]  # fmt: skip
EDGES = [
    datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2011, 12, 30, 10, tzinfo=UTC), datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC), datetime(2000, 2, 29, tzinfo=UTC), datetime(2100, 3, 1, tzinfo=UTC),
]  # fmt: skip
SIZES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
NAMES = {3: ["jan", "FEB", "Mar", "dec"], 4: ["sun", "MON", "Wed", "sat"]}


def reference_due(trigger: object, zone: ZoneInfo, at: datetime) -> datetime | None:
    """The tick that the reference's dispatch pass considers at this instant."""
    with timezone.override(zone):
        wall = timezone.localtime(at).replace(tzinfo=None)
        tick = timezone.make_aware(trigger.previous(wall))  # type: ignore[attr-defined]
    return None if tick > at else tick.astimezone(UTC)


def field(chance: random.Random, index: int) -> str:
    low, high = SIZES[index]
    if chance.random() < 0.35:
        return "*"
    return ",".join(part(chance, index, low, high) for _ in range(chance.choice([1, 1, 1, 2, 3])))


def part(chance: random.Random, index: int, low: int, high: int) -> str:
    value, other = chance.randint(low, high), chance.randint(low, high)
    first, last = sorted((value, other))
    step = chance.randint(1, high - low + 1)
    return chance.choice([
        str(value), str(value), f"{first}-{last}", f"*/{step}", f"{first}-{last}/{step}", f"{value}/{step}",
        *NAMES.get(index, []),
    ])  # fmt: skip


def expression(chance: random.Random) -> str:
    if chance.random() < 0.02:
        return chance.choice(["@yearly", "@annually", "@monthly", "@Weekly", "@daily", "@midnight", "@hourly"])
    return " ".join(field(chance, index) for index in range(5))


def instant(chance: random.Random) -> datetime:
    if chance.random() < 0.6:
        return chance.choice(EDGES) + timedelta(seconds=chance.uniform(-40_000, 40_000))
    return datetime(1990, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.uniform(0, 60 * 366 * 86_400))


def zone(chance: random.Random, zones: list[str]) -> ZoneInfo:
    return ZoneInfo(chance.choice(TWISTED if chance.random() < 0.7 else zones))


def test_cron_ticks_are_the_reference_s_in_any_zone_at_any_instant():
    chance, zones = random.Random(20_261_130), sorted(available_timezones())
    compared = 0
    for _ in range(EXPRESSIONS):
        text = expression(chance)
        try:
            theirs = CronExpression(text)
        except ValueError:
            with pytest.raises(InvalidSchedule):
                parse_cron(text)
            continue
        for _ in range(INSTANTS):
            compared += compare(parse_cron(text), theirs, zone(chance, zones), instant(chance))
    assert compared > EXPRESSIONS * INSTANTS / 2


def test_interval_ticks_are_the_reference_s_in_any_zone_at_any_instant():
    chance, zones = random.Random(1130), sorted(available_timezones())
    for _ in range(EXPRESSIONS):
        every = timedelta(seconds=chance.choice([1, 1.5, 60, 900, 1800, 2700, 3600, 7200, 86_400, 604_800, 7_776_000]))
        phase = every * chance.choice([0, 0, 0.25, 0.9])
        ours, theirs = Interval(every, phase), IntervalTrigger(every=every, phase=phase)
        for _ in range(INSTANTS):
            compare(ours, theirs, zone(chance, zones), instant(chance))


def compare(ours: Trigger, theirs: object, zone: ZoneInfo, at: datetime) -> bool:
    timing, expected = Timing(ours, zone), reference_due(theirs, zone, at)
    assert timing.due(at) == expected, (str(timing), at)
    if expected is not None:
        assert timing.latest(at) == expected
    return True


@pytest.mark.parametrize(
    "text",
    [
        "* * * *", "* * * * * *", "", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8",
        "5-1 * * * *", "*/0 * * * *", "*/61 * * * *", "*/x * * * *", "a * * * *", "1,,2 * * * *", "* * * foo *",
        "0 0 30 2 *", "0 0 31 4,6,9,11 *", "@never", "* * * * fri-sun", "-1 * * * *", "1- * * * *", "*/9 * * * */9",
    ],
)  # fmt: skip
def test_what_the_reference_refuses_is_refused(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - each of them has words of its own
        CronExpression(text)
    with pytest.raises(InvalidSchedule):
        parse_cron(text)


@pytest.mark.parametrize(
    "text", ["+5 * * * *", "0 0 29 2 *", "0 0 31 2 mon", "5/ * * * *", "*/ * * * *", "* * */1 * *", " 0  0 * * 7 "]
)
def test_what_the_reference_accepts_is_accepted(text: str):
    ours, theirs = parse_cron(text), CronExpression(text)
    for edge in EDGES:
        wall = edge.replace(tzinfo=None)
        assert ours.previous(wall) == theirs.previous(wall)
        assert ours.following(wall) == theirs.following(wall)
