"""When a schedule is due: a pure function of its definition, so that every process derives the same ticks.

Ticks are times on the wall clock of a zone, made instants. A wall time that
the clock skips counts with the offset from before the change, so it comes that
much later; one that the clock shows twice is a tick twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from oxpull_async.core.cron import parse_cron
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.exceptions import InvalidSchedule

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a time on the wall
_JUST: Final = timedelta(microseconds=1)
SHORTEST_INTERVAL: Final = timedelta(seconds=1)
LONGEST_INTERVAL: Final = _EPOCH - datetime(1, 1, 1)  # noqa: DTZ001


class Trigger(Protocol):
    """The ticks of a schedule on a wall clock, naive times."""

    def previous(self, wall: datetime) -> datetime:
        """The latest tick at or before this time."""
        ...

    def following(self, wall: datetime) -> datetime:
        """The earliest tick after this time."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """A tick every so often, counted from 1970 on the wall clock and shifted by ``phase``: no restart moves it."""

    every: timedelta
    phase: timedelta = timedelta(0)

    def __str__(self) -> str:
        return f"every {self.every}" + (f", phase {self.phase}" if self.phase else "")

    def previous(self, wall: datetime) -> datetime:
        return (wall - (wall - _EPOCH - self.phase) % self.every).replace(fold=wall.fold)

    def following(self, wall: datetime) -> datetime:
        return self.previous(wall) + self.every


@dataclass(frozen=True, slots=True)
class Timing:
    """A trigger on the wall clock of a zone."""

    trigger: Trigger
    zone: tzinfo

    def __str__(self) -> str:
        return f"{self.trigger} {self.zone_name}"

    @property
    def zone_name(self) -> str:
        """As it was given, such as ``Europe/Berlin``."""
        return str(self.zone)

    def due(self, at: datetime) -> datetime | None:
        """The one tick that a dispatcher considers at this instant, in UTC.

        None in the part of a skipped hour where the latest wall time is one
        that the clock skips, whose instant is still to come.
        """
        tick = self._instant(self.trigger.previous(self._wall(at)))
        return None if tick > at else tick

    def latest(self, at: datetime) -> datetime:
        """The latest tick at or before this instant, in UTC."""
        return self._instant(self._latest_wall(at))

    def next(self, at: datetime) -> datetime:
        """The earliest instant after this one at which a tick becomes due, in UTC."""
        found = [next(tick for tick in self._ticks_after(self._latest_wall(at)) if tick > at)]
        if (again := self._second_pass(at)) is not None:
            found += [tick for tick in self._ticks_between(again, found[0]) if tick > at][:1]
        return min(found)

    def _latest_wall(self, at: datetime) -> datetime:
        wall = self.trigger.previous(self._wall(at))
        while self._instant(wall) > at:
            wall = self.trigger.previous(wall - _JUST)
        return wall

    def _ticks_after(self, wall: datetime) -> Iterator[datetime]:
        while True:
            wall = self.trigger.following(wall)
            for fold in (0, 1):
                tick = self._instant(wall.replace(fold=fold))
                if self.due(tick) == tick:
                    yield tick

    def _ticks_between(self, wall: datetime, end: datetime) -> Iterator[datetime]:
        """Those of a second pass, from its first wall time on."""
        wall -= _JUST
        while (tick := self._instant((wall := self.trigger.following(wall)).replace(fold=1))) < end:
            if self.due(tick) == tick:
                yield tick

    def _second_pass(self, at: datetime) -> datetime | None:
        """Where the wall clock is set back to, if ``at`` lies in the time that it then shows again."""
        wall = self._wall(at)
        if wall.fold or (turned_back := self._instant(wall.replace(fold=1)) - at) <= timedelta(0):
            return None
        before, after = at, at + turned_back
        while after - before > _JUST:
            middle = before + (after - before) / 2
            before, after = (before, middle) if self._offset(middle) != self._offset(at) else (middle, after)
        return self._wall(after).replace(fold=0)

    def _offset(self, at: datetime) -> timedelta | None:
        return at.astimezone(self.zone).utcoffset()

    def _wall(self, at: datetime) -> datetime:
        if at.tzinfo is None:
            raise ValueError(f"an instant needs a time zone, and {at!r} has none")
        return at.astimezone(self.zone).replace(tzinfo=None)

    def _instant(self, wall: datetime) -> datetime:
        return wall.replace(tzinfo=self.zone).astimezone(UTC)


def make_timing(*, cron: str | None, every: Duration | None, phase: Duration, timezone: object) -> Timing:
    """The timing that a declaration means. Raises: InvalidSchedule naming what is wrong with it."""
    zone = find_zone(timezone)
    if (cron is None) == (every is None):
        raise InvalidSchedule("a schedule needs either cron= or every=" + ("" if cron is None else ", not both"))
    if cron is not None:
        if phase:
            raise InvalidSchedule("phase= shifts an interval, so it goes with every=, not with cron=")
        return Timing(parse_cron(cron), zone)
    return Timing(make_interval(every, phase), zone)


def make_interval(every: Any, phase: Any) -> Interval:
    """Raises: InvalidSchedule."""
    length, shift = _length(every, "every"), _length(phase, "phase")
    if not SHORTEST_INTERVAL <= length <= LONGEST_INTERVAL:
        raise InvalidSchedule(
            f"every= must be from 1 to {LONGEST_INTERVAL // SHORTEST_INTERVAL} seconds, not {length.total_seconds():g}"
        )
    if not shift < length:
        raise InvalidSchedule(f"phase= must be shorter than the interval: {shift} is not less than {length}")
    return Interval(length, shift)


def find_zone(timezone: object) -> tzinfo:
    """A zone by its name, or one as it is. Raises: InvalidSchedule."""
    if isinstance(timezone, tzinfo):
        return timezone
    if timezone == "UTC":
        return UTC
    if isinstance(timezone, str):
        try:
            return ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise InvalidSchedule(f"there is no time zone {timezone!r} on this machine; write one as 'Europe/Berlin'")


def _length(value: Any, name: str) -> timedelta:
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value
    try:
        return timedelta(seconds=seconds(value, f"{name}="))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSchedule(str(error)) from error
