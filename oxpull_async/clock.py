"""The clock of one ``Oxpull``: whatever it decides by the time of day, it decides by this."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime


class Clock:
    """Tells the time, in UTC; a test may put another source in the system clock's place.

    Leases alone go by the database's own clock.
    """

    def __init__(self) -> None:
        self._read: Callable[[], datetime] = system_time

    def now(self) -> datetime:
        """The instant it is, aware, in UTC."""
        return self._read()

    def read_from(self, source: Callable[[], datetime]) -> Callable[[], datetime]:
        """Take the time from there from now on; returns the source before."""
        before, self._read = self._read, source
        return before


def system_time() -> datetime:
    """This machine's time."""
    return datetime.now(UTC)
