"""The attempts that a worker answers for, from the claim until their outcome is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from oxpull_async.ports import Claim
from oxpull_async.runtime.threads import ThreadCall


class Interruption(Enum):
    """Why a worker cancels an attempt. None of these makes it a failed one."""

    SHUTDOWN = auto()
    """The worker must end: the row goes back, its attempt refunded."""
    LEASE_LOST = auto()
    """The row is somebody else's by now: whatever this attempt does, it can't be written."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One run of a task row under one grant."""

    claim: Claim
    runner: asyncio.Task[None] | None = None
    is_running: bool = True
    """Until the task's own code has ended; after that the runner is never cancelled."""
    interrupted: Interruption | None = None
    thread: ThreadCall | None = None

    def interrupt(self, reason: Interruption) -> None:
        """Cancel the task's code, once, if it's still running."""
        if self.is_running and self.interrupted is None and self.runner is not None:
            self.interrupted = reason
            self.runner.cancel()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the task's code runs, or ever will. A thread that hasn't begun is kept from it."""
        return not self.is_running and (self.thread is None or self.thread.revoke())


class Attempts:
    """At most ``concurrency`` attempts run; further ones may wait for their outcome to be written."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._present: dict[tuple[UUID, int], Attempt] = {}
        self._running = 0
        self._listeners: list[Callable[[], None]] = []
        self.at_rest: asyncio.Event = asyncio.Event()
        """Set while no task's code runs."""
        self.nothing_to_write: asyncio.Event = asyncio.Event()
        """Set while no attempt that has ended waits for its outcome to be written."""
        self._tell()

    @property
    def free(self) -> int:
        """How many further attempts may run."""
        return self._concurrency - self._running

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs, and everything is written."""
        return not self._present

    @property
    def present(self) -> list[Attempt]:
        """Every attempt whose outcome isn't written yet."""
        return list(self._present.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call this whenever an attempt has come, ended or gone."""
        self._listeners.append(listener)

    def add(self, attempt: Attempt) -> None:
        """An attempt begins."""
        self._present[_key(attempt)] = attempt
        self._running += 1
        self._tell()

    def end(self, attempt: Attempt) -> None:
        """The task's code has ended: its place is free."""
        if attempt.is_running:
            attempt.is_running = False
            self._running -= 1
            self._tell()

    def remove(self, attempt: Attempt) -> None:
        """The outcome is written, or never will be."""
        self.end(attempt)
        if self._present.pop(_key(attempt), None) is not None:
            self._tell()

    def _tell(self) -> None:
        _set(self.at_rest, not self._running)
        _set(self.nothing_to_write, len(self._present) == self._running)
        for listener in self._listeners:
            listener()


def _key(attempt: Attempt) -> tuple[UUID, int]:
    return attempt.claim.id, attempt.claim.lease_epoch


def _set(event: asyncio.Event, is_true: bool) -> None:
    if is_true:
        event.set()
    else:
        event.clear()
