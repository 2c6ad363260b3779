"""The attempts that a worker answers for, from the claim until their outcome is written."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from oxpull_async.ports import Claim, Outcome
from oxpull_async.runtime.threads import ThreadCall


class Interruption(Enum):
    """Why a worker cancels an attempt."""

    SHUTDOWN = auto()
    """The worker must end: the row goes back, its attempt refunded."""
    LEASE_LOST = auto()
    """The row is somebody else's by now: whatever this attempt does, it can't be written."""
    TIMEOUT = auto()
    """The attempt is beyond its task's time limit: it has failed, unless it still returns something."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One run of a task row under one grant."""

    claim: Claim
    held_until: float = math.inf
    """The ``time.monotonic`` at which its lease is over, unless it's renewed: after that it must not begin."""
    runner: asyncio.Task[None] | None = None
    has_begun: bool = False
    is_running: bool = True
    """Until the task's own code has ended, or was given up; after that the runner is never cancelled."""
    interrupted: Interruption | None = None
    thread: ThreadCall | None = None
    timer: asyncio.TimerHandle | None = None
    unrenewed_from: float | None = None
    """The ``time.monotonic`` from which on its lease is left to run out, because nothing else ends it."""
    outcome: Outcome | None = None
    error: BaseException | None = None
    settle_until: float | None = None
    """The ``time.monotonic`` until which a failed write of the outcome is tried again."""

    def interrupt(self, reason: Interruption) -> None:
        """Cancel the task's code, once, if it's still running. What hasn't begun will see it before it begins.

        Beyond its time limit a thread gets the grace to end by itself.
        """
        if not self.is_running or self.interrupted is not None:
            return
        self.interrupted = reason
        spared = reason is Interruption.TIMEOUT and self.thread is not None and self.thread.is_under_way
        if self.has_begun and self.runner is not None and not spared:
            self.runner.cancel()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the task's code runs, or ever will. A thread that hasn't begun is kept from it."""
        return not self.is_running and (self.thread is None or self.thread.revoke())


class Attempts:
    """At most ``concurrency`` attempts run. Others wait for a place, or for their outcome to be written."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._present: dict[Attempt, None] = {}
        self._waiting: deque[Attempt] = deque()
        self._running = 0
        self._abandoned: set[tuple[object, int]] = set()
        self.at_rest: asyncio.Event = asyncio.Event()
        """Set while no task's code runs."""
        self.nothing_to_write: asyncio.Event = asyncio.Event()
        """Set while no attempt that has ended waits for its outcome to be written."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when an attempt has ended or gone."""
        self.at_rest.set()
        self.nothing_to_write.set()

    @property
    def free(self) -> int:
        """How many further attempts may run."""
        return self._concurrency - self._running

    @property
    def waiting(self) -> int:
        """How many are claimed and haven't begun."""
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs or waits, and everything is written."""
        return not self._present

    @property
    def present(self) -> list[Attempt]:
        """Every attempt whose outcome isn't written yet. May be asked from any thread."""
        return list(self._present.copy())

    def wait_for_place(self, claims: list[Claim], held_until: float = math.inf) -> None:
        """Claimed, and to begin when a place is free."""
        for claim in claims:
            attempt = Attempt(claim, held_until)
            self._present[attempt] = None
            self._waiting.append(attempt)

    def begin_next(self) -> Attempt | None:
        """The next attempt to run, its place taken; None if none waits or no place is free."""
        if not self._waiting or self._running >= self._concurrency:
            return None
        if not self._running:
            self.at_rest.clear()
        self._running += 1
        return self._waiting.popleft()

    def take_waiting(self) -> list[Claim]:
        """Those that haven't begun, which we no longer answer for."""
        taken = list(self._waiting)
        self._waiting.clear()
        for attempt in taken:
            attempt.is_running = False
            del self._present[attempt]
        self._note_gone()
        return [attempt.claim for attempt in taken]

    def end(self, attempt: Attempt) -> None:
        """The task's code has ended: its place is free."""
        if attempt.is_running:
            attempt.is_running = False
            self._running -= 1
            self.nothing_to_write.clear()
            if not self._running:
                self.at_rest.set()
            self.on_change()

    def remove(self, attempt: Attempt, *, is_written: bool = True) -> None:
        """The outcome is written, or never will be."""
        self.end(attempt)
        if not is_written:
            self._abandoned.add(_grant(attempt.claim))
        self._present.pop(attempt, None)
        self._note_gone()

    def unaccounted(self, claims: list[Claim]) -> list[Claim]:
        """Those of the claims that never came to this worker."""
        known = {_grant(attempt.claim) for attempt in self._present} | self._abandoned
        return [claim for claim in claims if _grant(claim) not in known]

    def _note_gone(self) -> None:
        if len(self._present) == self._running + len(self._waiting):
            self.nothing_to_write.set()
        self.on_change()


def _grant(claim: Claim) -> tuple[object, int]:
    return claim.id, claim.lease_epoch
