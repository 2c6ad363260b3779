"""Sync functions in threads: what can be known of a call that nobody can stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread


class ThreadCall:
    """A call that is made in a thread, unless it's revoked before it begins."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._begun = False
        self._ended = False
        self._revoked = False

    @property
    def is_under_way(self) -> bool:
        """Whether it has begun; if it has ended since, its value is on its way."""
        return self._begun

    async def run(self, limiter: CapacityLimiter) -> Any:
        """What the call returns. A cancel leaves the thread to itself, and its result is dropped."""
        return await to_thread.run_sync(self._call, abandon_on_cancel=True, limiter=limiter)

    def revoke(self) -> bool:
        """Keep the call from beginning; False if it is under way."""
        with self._lock:
            self._revoked = True
            return not self._begun or self._ended

    def _call(self) -> Any:
        with self._lock:
            if self._revoked:
                return None
            self._begun = True
        try:
            return self._work()
        finally:
            self._ended = True
