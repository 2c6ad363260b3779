"""Cron expressions: five fields, read as the reference reads them, and walked in either direction.

Minute, hour, day of the month, month, day of the week. A field is ``*``, or a
list of values, ranges ``1-5`` and steps ``*/15``, ``8-18/2``, ``5/20`` (from 5
to the end); months and weekdays have names, and 0 and 7 are both Sunday. Where
both the day of the month and the day of the week are restricted, either of
them is enough; ``*/2`` restricts, a bare ``*`` doesn't.

All times here are naive: what a clock on the wall shows.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final

from oxpull_async.exceptions import InvalidSchedule

MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ONE_DAY: Final = timedelta(days=1)
_SOME_LEAP_YEAR: Final = 2000
_LONGEST_GAP: Final = timedelta(days=9 * 366)
"""Longer than any expression waits: 29 February does so from 2096 to 2104."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the five: its name, its range, and names for some of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse(self, text: str) -> tuple[tuple[int, ...], bool]:
        """The values it allows, ascending, and whether it restricts anything. Raises: InvalidSchedule."""
        if text == "*":
            return tuple(range(self.low, self.high + 1)), False
        return tuple(sorted({value for part in text.split(",") for value in self._part(part, text)})), True

    def _part(self, part: str, text: str) -> range:
        body, _, step_text = part.partition("/")
        step = self._step(step_text, text) if step_text else 1
        if body == "*":
            return range(self.low, self.high + 1, step)
        if "-" in body:
            first, last = (self._value(end) for end in body.split("-", 1))
            if first > last:
                raise InvalidSchedule(f"the {self.name} range {body!r} descends")
            return range(first, last + 1, step)
        first = self._value(body)
        return range(first, (self.high if step_text else first) + 1, step)

    def _step(self, step_text: str, text: str) -> int:
        if not step_text.isdecimal() or not 1 <= int(step_text) <= self.high - self.low + 1:
            raise InvalidSchedule(
                f"the step {step_text!r} of the {self.name} field {text!r} must be a whole number "
                f"from 1 to {self.high - self.low + 1}"
            )
        return int(step_text)

    def _value(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        try:
            value = int(text)
        except ValueError:
            raise InvalidSchedule(f"{text!r} is no value for the {self.name}") from None
        if not self.low <= value <= self.high:
            raise InvalidSchedule(f"the {self.name} {text!r} is outside {self.low} to {self.high}")
        return value


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. It has a tick at each minute that its fields allow."""

    expression: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Both kinds of day are restricted, so one of them is enough."""

    def __str__(self) -> str:
        return self.expression

    def previous(self, wall: datetime) -> datetime:
        """The latest tick at or before this time.

        Its ``fold`` is that of ``wall`` where no earlier hour of that day with
        ticks had to be entered for it: so the reference tells the two passes
        of a repeated hour apart.
        """
        if self._has_day(wall.date()):
            earlier = [hour for hour in self.hours if hour <= wall.hour]
            if earlier and earlier[-1] == wall.hour:
                minutes = [minute for minute in self.minutes if minute <= wall.minute]
                if minutes:
                    return wall.replace(minute=minutes[-1], second=0, microsecond=0)
                earlier.pop()
                wall = wall.replace(fold=0)
            if earlier:
                return wall.replace(hour=earlier[-1], minute=self.minutes[-1], second=0, microsecond=0)
        return datetime.combine(self._day_before(wall.date()), time(self.hours[-1], self.minutes[-1]))

    def following(self, wall: datetime) -> datetime:
        """The earliest tick after this time, with ``fold`` 0."""
        day = wall.date()
        if self._has_day(day):
            for hour in self.hours:
                for minute in self.minutes:
                    if (hour, minute) > (wall.hour, wall.minute):
                        return datetime.combine(day, time(hour, minute))
        return datetime.combine(self._day_after(day), time(self.hours[0], self.minutes[0]))

    def _has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month or of_week) if self.either_day else (of_month and of_week)

    def _day_before(self, day: date) -> date:
        last = day - _LONGEST_GAP
        while day > last:
            in_month = day.month in self.months
            day = (day if in_month else day.replace(day=1)) - _ONE_DAY
            if self._has_day(day):
                return day
        raise AssertionError(f"{self.expression!r} has no tick in nine years")

    def _day_after(self, day: date) -> date:
        last = day + _LONGEST_GAP
        while day < last:
            in_month = day.month in self.months
            day = (day if in_month else day.replace(day=monthrange(day.year, day.month)[1])) + _ONE_DAY
            if self._has_day(day):
                return day
        raise AssertionError(f"{self.expression!r} has no tick in nine years")


def parse_cron(expression: str) -> Cron:
    """Raises: InvalidSchedule for an expression that can't be read, or never comes true."""
    if not isinstance(expression, str):
        raise InvalidSchedule(f"a cron expression is a text, not {expression!r}")
    try:
        return _parse(expression.strip())
    except InvalidSchedule as error:
        raise InvalidSchedule(f"cron expression {expression!r}: {error}") from None


def _parse(expression: str) -> Cron:
    fields = MACROS.get(expression.lower(), expression).split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise InvalidSchedule(f"it must have five fields ({names}), not {len(fields)}")
    (minutes, _), (hours, _), (days, days_restricted), (months, _), (weekdays, weekdays_restricted) = (
        field.parse(text) for field, text in zip(_FIELDS, fields, strict=True)
    )
    if not weekdays_restricted and not _any_exists(days, months):
        raise InvalidSchedule("none of its months has any of its days, so it would never come true")
    return Cron(
        expression=expression,
        minutes=minutes,
        hours=hours,
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=days_restricted and weekdays_restricted,
    )


def _any_exists(days: Sequence[int], months: Sequence[int]) -> bool:
    return any(days[0] <= monthrange(_SOME_LEAP_YEAR, month)[1] for month in months)
