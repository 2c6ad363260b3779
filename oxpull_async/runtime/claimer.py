"""Claims rows for the places that are free and a few ahead, and sees when there is nothing left to do."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import uniform
from typing import Final

from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.runtime.attempts import Attempts
from oxpull_async.runtime.executor import Executor
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.pace import Pace
from oxpull_async.telemetry import log

MAX_ROWS: Final = 100
"""How many rows one statement claims at most: larger ones keep others waiting for the same pages."""
MAX_PREFETCH: Final = 400
_SHORTEST_POLL: Final = 1 / 8
"""The share of the poll interval that is waited after the last row found; then it doubles."""
_PAUSED_SECONDS: Final = 0.1
_WORTH_ASKING_SECONDS: Final = 0.05
"""For a shorter pause it's not asked when the next row becomes due."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a worker takes rows."""

    worker_id: str
    queues: Sequence[str] | None
    lease_seconds: float
    poll_interval: float
    prefetch: int = MAX_PREFETCH
    until_idle: bool = False
    """Finish when nothing is due and nothing runs."""
    max_tasks: int | None = None
    """Finish after this many claims."""


class Claimer:
    """One claim per turn. Woken by hints and by places that become free while there is more to take."""

    def __init__(
        self,
        host: Host,
        terms: Terms,
        attempts: Attempts,
        executor: Executor,
        pace: Pace,
        wake: asyncio.Event,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.finished: asyncio.Event = asyncio.Event()
        """Set when the terms are met; without an end to them, never."""
        self._host = host
        self._terms = terms
        self._attempts = attempts
        self._executor = executor
        self._pace = pace
        self._wake = wake
        self._is_paused = is_paused
        self._left = math.inf if terms.max_tasks is None else terms.max_tasks
        self._may_find_more = True
        self._unsure_until: float | None = None
        self._looked_at = host.clock.now()
        self._idle_turns = 0
        self._has_warned = False
        attempts.on_change = self._look_again

    async def turn(self) -> float:
        """Claim rows and have their attempts begun; returns the pause before the next turn."""
        await self.recover()
        if self._is_paused():
            return _PAUSED_SECONDS
        was_idle = self._attempts.is_empty
        limit = int(min(self._room(), self._left, MAX_ROWS))
        if limit <= 0:
            return self._wait_for_place(was_idle)
        held_until = time.monotonic() + self._terms.lease_seconds
        claims = await self._claim(limit)
        self._left -= len(claims)
        self._may_find_more = len(claims) == limit
        self._executor.admit(claims, held_until)
        if was_idle and not claims and self._terms.until_idle:
            self.finished.set()
        return await self._pause(found=bool(claims))

    async def recover(self) -> None:
        """Give back rows of a claim that failed here, but was committed over there. Raises: StoreError."""
        if self._unsure_until is None:
            return
        if time.monotonic() < self._unsure_until:  # after that their leases have run out
            held = await self._host.store.held(self._terms.worker_id)
            lost = [claim for claim in self._attempts.unaccounted(list(held)) if self._is_mine(claim)]
            released = await self._host.store.release(lost, worker_id=self._terms.worker_id)
            await self._host.exclusive.tasks.recover(lost)
            if released:
                log(
                    logging.WARNING,
                    "claim_recovered",
                    f"{len(released)} row(s) of a claim whose answer was lost were handed back",
                )
        self._unsure_until = None

    def _is_mine(self, claim: Claim) -> bool:
        """Whether the row's history is such that a claim can be taken off it."""
        workers = json.loads(claim.worker_ids)
        is_sound: bool = len(workers) == claim.attempts and workers[-1:] == [self._terms.worker_id]
        if not is_sound:
            log(
                logging.ERROR,
                "worker_claim_release_refused",
                f"task {claim.task_path} ({claim.id}) runs under this worker's name, but its history doesn't say so",
                task_path=claim.task_path,
                task_id=str(claim.id),
            )
        return is_sound

    def _room(self) -> int:
        """Places that are free, and as many rows ahead as will be through in a few milliseconds.

        Half of those ahead are used up before others are claimed, so that a claim is worth its statement.
        """
        ahead = min(self._terms.prefetch, self._pace.recent())
        free = self._attempts.free - self._attempts.waiting
        return 0 if free <= 0 and -free > ahead // 2 else free + ahead

    def _wait_for_place(self, was_idle: bool) -> float:
        if was_idle:
            self.finished.set()  # every place is free, so it's the claims that are used up
        self._may_find_more = True
        return self._terms.poll_interval

    async def _claim(self, limit: int) -> list[Claim]:
        paths = list(self._host.tasks)
        if not paths:
            self._warn()
            return []
        terms = self._terms
        self._looked_at = self._host.clock.now()
        request = ClaimRequest(
            worker_id=terms.worker_id,
            task_paths=paths,
            queues=terms.queues,
            limit=limit,
            lease_seconds=terms.lease_seconds,
            now=self._looked_at,
        )
        try:
            return list(await self._host.limits.claim(request))
        except StoreError:
            self._unsure_until = time.monotonic() + terms.lease_seconds
            raise

    async def _pause(self, *, found: bool) -> float:
        if found and self._may_find_more:
            return 0.0
        self._idle_turns = 0 if found else self._idle_turns + 1
        share: float = min(1.0, _SHORTEST_POLL * 2 ** min(self._idle_turns, 8))
        pause = uniform(0.75, 1) * share * self._terms.poll_interval
        if found or pause < _WORTH_ASKING_SECONDS or self._terms.until_idle:
            return pause
        return min(pause, await self._next_due())

    async def _next_due(self) -> float:
        """In how many seconds a row becomes due; infinity if none is waiting for that."""
        paths = list(self._host.tasks)
        due = await self._host.store.next_due(task_paths=paths, queues=self._terms.queues, after=self._looked_at)
        return math.inf if due is None else max(0.001, (due - self._host.clock.now()).total_seconds())

    def _look_again(self) -> None:
        has_end = self._terms.until_idle or self._left <= 0
        if self._may_find_more or (has_end and self._attempts.is_empty):
            self._wake.set()

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log(logging.WARNING, "worker_has_no_tasks", "no task is declared in this process: nothing can be claimed")
