"""How fast a worker settles, so that it knows how many rows to have at hand."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_SECONDS: Final = 0.02


class Pace:
    """Counts what was settled lately."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._notes: deque[tuple[float, int]] = deque()
        self._sum = 0

    def note(self, count: int) -> None:
        """So many were settled just now."""
        self._notes.append((self._now(), count))
        self._sum += count
        self._forget()

    def recent(self) -> int:
        """How many were settled within the last 20 ms."""
        self._forget()
        return self._sum

    def _forget(self) -> None:
        since = self._now() - WINDOW_SECONDS
        while self._notes and self._notes[0][0] < since:
            self._sum -= self._notes.popleft()[1]
