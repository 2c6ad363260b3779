"""Cuts connections off whose server answers nothing any more: one timer for all, since one for each statement costs
a twentieth of an INSERT.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

_LATE: Final = 1.25
"""The server itself ends a statement after its time; only when nothing has come long after that is it gone."""


class Watch:
    """Looks after statements that carry no timer of their own, while there are any."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds * _LATE
        self._under_way: dict[Any, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: Any) -> None:
        """A statement begins on this connection."""
        self._under_way[connection] = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds / 4, self._look)

    def end(self, connection: Any) -> None:
        """It has ended, one way or the other."""
        self._under_way.pop(connection, None)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        overdue = time.monotonic() - self._seconds
        for connection, since in list(self._under_way.items()):
            if since < overdue:
                connection.terminate()
        if self._under_way:
            self._timer = asyncio.get_running_loop().call_later(self._seconds / 4, self._look)
