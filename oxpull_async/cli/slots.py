"""When a worker process that has ended is started again: a decision for each place of a fleet, without a clock."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field
from typing import Final

RECYCLED: Final = 75
"""The exit code of a worker that ended because a task of its can't be stopped otherwise."""
USAGE: Final = 2
"""The exit code of a wrong call, which another try wouldn't mend."""

_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 30.0
_FORGET_AFTER: Final = 60.0
_MOST_DEATHS: Final = 5


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after so many seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Done:
    """It has done what it was for."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It would only die again: end the whole fleet with this exit code."""

    code: int


@dataclass
class Slot:
    """One place of a fleet, and what has become of the processes that held it."""

    index: int
    ends: bool
    """Whether its processes end by themselves when nothing is due."""
    started_at: float = 0.0
    _delay: float = _FIRST_DELAY
    _deaths: deque[float] = field(default_factory=deque)

    def after(self, code: int, now: float) -> Restart | Done | GiveUp:
        """What to do about a process that ended with this code, though nobody stopped it."""
        if code == 0:
            return Done() if self.ends else Restart(0.0)
        if code == RECYCLED:
            return Restart(_FIRST_DELAY)
        if code == USAGE:
            return GiveUp(USAGE)
        return self._after_death(now)

    def _after_death(self, now: float) -> Restart | GiveUp:
        self._deaths.append(now)
        while now - self._deaths[0] > _FORGET_AFTER:
            self._deaths.popleft()
        if len(self._deaths) > _MOST_DEATHS:
            return GiveUp(1)
        if now - self.started_at >= _FORGET_AFTER:
            self._delay = _FIRST_DELAY
        delay, self._delay = self._delay, min(2 * self._delay, _LONGEST_DELAY)
        return Restart(delay)


def exit_code(code: int) -> int:
    """A process's end as a shell tells it: 128 and the signal's number for one that was killed."""
    return 128 - code if code < 0 else code


def in_words(code: int) -> str:
    """How a process ended."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
