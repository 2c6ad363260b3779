"""Ends attempts that are beyond their task's time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from oxpull_async.runtime.attempts import Attempt, Interruption

_MARGIN_SECONDS: Final = 5.0


class Timekeeper:
    """Cancels at the limit, and takes the row away after the grace from what didn't end.

    While the event loop is blocked none of that can happen; then the lease is
    no longer renewed, so that the row isn't held for ever.
    """

    def __init__(self, grace: float, take_away: Callable[[Attempt], None]) -> None:
        self._grace = grace
        self._take_away = take_away

    def watch(self, attempt: Attempt, timeout: float) -> None:
        """The attempt begins now, and may take so many seconds."""
        attempt.unrenewed_from = time.monotonic() + timeout + self._grace + _MARGIN_SECONDS
        attempt.timer = asyncio.get_running_loop().call_later(timeout, self._expire, attempt)

    def _expire(self, attempt: Attempt) -> None:
        attempt.interrupt(Interruption.TIMEOUT)
        attempt.timer = asyncio.get_running_loop().call_later(self._grace, self._take_away, attempt)


def forget(attempt: Attempt) -> None:
    """The attempt has ended, or was given up."""
    attempt.unrenewed_from = None
    if attempt.timer is not None:
        attempt.timer.cancel()
        attempt.timer = None
