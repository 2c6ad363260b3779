"""``freeze`` and ``travel``: what an ``Oxpull`` takes for the time of day, in a test's hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from oxpull_async.app import Oxpull
from oxpull_async.clock import system_time
from oxpull_async.core.durations import Duration


class TimeMachine:
    """Moves the clock of one ``Oxpull``."""

    def __init__(self, ox: Oxpull, source: Callable[[], datetime]) -> None:
        self._ox = ox
        self._source = source
        self._offset = timedelta()

    def now(self) -> datetime:
        """What the ``Oxpull`` takes for the time of day."""
        return self._source() + self._offset

    def move(self, to: datetime | Duration) -> None:
        """Go to an aware instant, or by so many seconds (or a ``timedelta``); what is due by then can be claimed."""
        if isinstance(to, datetime):
            self._offset += _aware(to) - self.now()
        else:
            self._offset += _period(to)
        self._ox.ready_hints.enqueued()


@contextmanager
def freeze(ox: Oxpull, at: datetime | None = None) -> Iterator[TimeMachine]:
    """While the block lasts, the clock of ``ox`` stands still: at ``at``, an aware instant, or now."""
    instant = system_time() if at is None else _aware(at)
    yield from _moved(ox, TimeMachine(ox, lambda: instant))


@contextmanager
def travel(ox: Oxpull, to: datetime | Duration) -> Iterator[TimeMachine]:
    """While the block lasts, the clock of ``ox`` runs on from an aware instant, or so much later than now.

    It decides what is due, and stamps what is written. Leases go by the
    database's clock, which isn't moved.
    """
    machine = TimeMachine(ox, system_time)
    machine.move(to)
    yield from _moved(ox, machine)


def _moved(ox: Oxpull, machine: TimeMachine) -> Iterator[TimeMachine]:
    before = ox.clock.read_from(machine.now)
    try:
        yield machine
    finally:
        ox.clock.read_from(before)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} is in no time zone; give an aware datetime")
    return instant.astimezone(UTC)


def _period(value: Duration) -> timedelta:
    """Also back in time."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value)
