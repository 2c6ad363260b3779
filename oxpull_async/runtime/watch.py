"""Notices that the event loop is blocked, and by which task."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Final

import anyio

from oxpull_async.runtime.attempts import Attempts
from oxpull_async.telemetry import log

BLOCKED_SECONDS: Final = 1.0
"""How long the event loop may keep an answer waiting before it counts as blocked."""
_SLOW_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 1.0


class Watch:
    """Asks the event loop of the attempts, from another thread, for a sign of life.

    Made in the watched loop's own thread.
    """

    def __init__(self, attempts: Attempts) -> None:
        self.is_slow: bool = False
        """Whether the loop's last answer took too long: it should get nothing more to do."""
        self._attempts = attempts
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked: tuple[float, asyncio.Event] | None = None
        self._is_told = False

    async def turn(self) -> float:
        """Ask, or go on waiting for an answer; returns the pause before the next question."""
        if self._attempts.is_empty and self._asked is None and not self.is_slow:
            return _LOOK_SECONDS
        asked_at, answered = self._asked = self._asked or self._ask()
        with anyio.move_on_after(BLOCKED_SECONDS):
            await answered.wait()
        seconds = time.monotonic() - asked_at
        self.is_slow = seconds > _SLOW_SECONDS
        if not answered.is_set():
            self._tell(seconds)
            return 0.0
        self._asked = None
        if self._is_told:
            self._is_told = False
            log(logging.WARNING, "event_loop_free", f"the event loop is free again after about {seconds:.1f} s")
        return _SLOW_SECONDS if self.is_slow else _LOOK_SECONDS

    def _ask(self) -> tuple[float, asyncio.Event]:
        answered = asyncio.Event()
        mine = asyncio.get_running_loop()
        self._loop.call_soon_threadsafe(_answer, mine, answered)
        return time.monotonic(), answered

    def _tell(self, seconds: float) -> None:
        if self._is_told:
            return
        self._is_told = True
        name, task_id = self._culprit()
        log(
            logging.WARNING,
            "event_loop_blocked",
            f"the event loop has been blocked for {seconds:.1f} s by {name}, at {self._place()}: nothing is claimed "
            "meanwhile; leases are renewed",
            task_path=name,
            task_id=task_id,
        )

    def _culprit(self) -> tuple[str, str | None]:
        current = asyncio.current_task(self._loop)
        if current is None:
            return "no task", None
        for attempt in self._attempts.present:
            if attempt.runner is current:
                return attempt.claim.task_path, str(attempt.claim.id)
        return current.get_name(), None

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread)
        return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _answer(asker: asyncio.AbstractEventLoop, answered: asyncio.Event) -> None:
    if not asker.is_closed():
        asker.call_soon_threadsafe(answered.set)
