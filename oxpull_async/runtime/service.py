"""A background loop: one deed per turn, then a pause that an event may cut short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from random import uniform
from typing import Final

import anyio

from oxpull_async.clock import system_time
from oxpull_async.exceptions import WrongDatabase
from oxpull_async.telemetry import log

_FIRST_BACKOFF_SECONDS: Final = 0.05
_MAX_DOUBLINGS: Final = 16


class Service:
    """Repeats a deed until it's told to stop. It never ends by an exception.

    The deed returns how many seconds to pause before the next turn. An error
    is counted and logged, once per kind until a turn succeeds again, and the
    turn is repeated after a growing, jittered pause, which a wake-up doesn't
    shorten. ``longest_stop``: how long, in seconds, a stop should take.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[float]],
        *,
        wake: asyncio.Event | None = None,
        longest_backoff: float = 30.0,
        longest_stop: float = 1.0,
    ) -> None:
        self.name = name
        self.longest_stop = longest_stop
        self.failures: int = 0
        """How many turns in a row have failed."""
        self.last_error: Exception | None = None
        self.running_since: datetime | None = None
        self.last_turn_at: datetime | None = None
        """When a turn last succeeded."""
        self.ended: asyncio.Event = asyncio.Event()
        self._turn = turn
        self._wake = asyncio.Event() if wake is None else wake
        self._stopping = asyncio.Event()
        self._longest_backoff = longest_backoff
        self._told: set[type[Exception]] = set()

    def stop(self) -> None:
        """Make the turn that is under way the last one."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Take turns until stopped."""
        self.running_since = system_time()
        try:
            while not self._stopping.is_set():
                self._wake.clear()  # before the turn: what is told during it leads to another one
                await self._take_turn()
        finally:
            self.ended.set()

    async def _take_turn(self) -> None:
        try:
            pause = await self._turn()
        except Exception as error:  # whatever it was, the next turn may succeed
            self._note_failure(error)
            await _wait(self._stopping, self._backoff())
        else:
            self._note_success()
            await _wait(self._wake, pause)

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        self.last_error = error
        traced = None if isinstance(error, WrongDatabase) else error  # it says what to do, wherever it came from
        if type(error) not in self._told:
            self._told.add(type(error))
            log(
                logging.ERROR,
                "service_failed",
                f"the {self.name} failed, and will try again: {error}",
                error=traced,
                service=self.name,
            )

    def _note_success(self) -> None:
        self.last_turn_at = system_time()
        if self.failures:
            log(
                logging.WARNING,
                "service_recovered",
                f"the {self.name} works again after {self.failures} failed turn(s)",
                service=self.name,
            )
            self.failures = 0
            self._told.clear()

    def _backoff(self) -> float:
        doubled: float = _FIRST_BACKOFF_SECONDS * 2 ** min(self.failures - 1, _MAX_DOUBLINGS)
        return uniform(0.5, 1) * min(doubled, self._longest_backoff)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    if seconds <= 0 or event.is_set():
        await asyncio.sleep(0)
        return
    with anyio.move_on_after(seconds):
        await event.wait()
