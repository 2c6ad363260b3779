"""Schedules kept as rows: what a row means, and when its activation boundary is out of date.

A row's ticks fire from ``start_time`` on. ``boundary_for`` is a digest of the
columns that this start was set for; where it differs the row was retimed or
paused behind the back of whoever moves the start with it, and a tick of the
new timing that came due before the change must not fire.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from hashlib import sha256
from typing import Final

from oxpull_async.core.cron import parse_cron
from oxpull_async.core.schedules import Timing, make_interval
from oxpull_async.exceptions import InvalidSchedule

KEY_PREFIX: Final = "db:"
"""What the tick log's names of stored schedules begin with; no declared schedule's name does."""
REREAD_SECONDS: Final = 60.0
"""How old the rows as last read may be, though nobody says that they have changed."""
MOST_GENERATIONS: Final = 2**31 - 1
_DIGEST_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a row says of its start: who finds it moved meanwhile leaves it alone."""

    boundary_for: str
    start_time: datetime
    generation: int


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A stored schedule. ``arguments`` is JSON text of the task's keyword arguments."""

    id: int
    name: str
    task_key: str
    trigger: str
    cron: str
    every_seconds: int | None
    phase_seconds: int
    arguments: str
    enabled: bool
    boundary: Boundary
    end_time: datetime | None
    starting_deadline_seconds: int | None

    @property
    def key(self) -> str:
        """Under which the tick log knows it: the row's id, since its name is a label that people edit."""
        return f"{KEY_PREFIX}{self.id}"

    @property
    def digest(self) -> str:
        """Of the columns that the boundary belongs to."""
        material = "|".join(
            f"{name}={getattr(self, name)!r}"
            for name in ("cron", "enabled", "every_seconds", "phase_seconds", "trigger")
        )
        return sha256(material.encode()).hexdigest()[:_DIGEST_LENGTH]

    @property
    def is_stale(self) -> bool:
        """Whether the boundary belongs to another timing."""
        return self.boundary.boundary_for != self.digest

    def timing(self, zone: tzinfo) -> Timing:
        """Raises: InvalidSchedule for what nobody can derive ticks from."""
        if self.trigger == "cron":
            return Timing(parse_cron(self.cron), zone)
        if self.every_seconds is None:
            raise InvalidSchedule("it is an interval without a length")
        return Timing(make_interval(self.every_seconds, self.phase_seconds), zone)

    def encloses(self, tick: datetime) -> bool:
        """Whether the tick is neither before the row's start nor after its end."""
        return self.boundary.start_time <= tick and (self.end_time is None or tick <= self.end_time)

    def is_too_late(self, tick: datetime, now: datetime) -> bool:
        """Whether the tick has passed its starting deadline."""
        deadline = self.starting_deadline_seconds
        return deadline is not None and now - tick > timedelta(seconds=deadline)


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A stored schedule with a value in it that isn't one."""

    id: int
    why: str
