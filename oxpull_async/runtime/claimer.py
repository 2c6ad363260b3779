"""Claims rows for the places that are free, and sees when there is nothing left to do."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import uniform
from typing import Final

from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.runtime.attempts import Attempts
from oxpull_async.runtime.executor import Executor
from oxpull_async.runtime.host import Host
from oxpull_async.telemetry import log

MAX_ROWS: Final = 100
"""How many rows one statement claims at most."""
_SHORTEST_POLL: Final = 1 / 8
"""The share of the poll interval that is waited after the last row found; then it doubles."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a worker takes rows."""

    worker_id: str
    queues: Sequence[str] | None
    lease_seconds: float
    poll_interval: float
    until_idle: bool = False
    """Finish when nothing is due and nothing runs."""
    max_tasks: int | None = None
    """Finish after this many claims."""


class Claimer:
    """One claim per turn. Woken by hints and by places that become free while there is more to take."""

    def __init__(self, host: Host, terms: Terms, attempts: Attempts, executor: Executor, wake: asyncio.Event) -> None:
        self.finished: asyncio.Event = asyncio.Event()
        """Set when the terms are met; without an end to them, never."""
        self._host = host
        self._terms = terms
        self._attempts = attempts
        self._executor = executor
        self._wake = wake
        self._left = math.inf if terms.max_tasks is None else terms.max_tasks
        self._may_find_more = True
        self._idle_turns = 0
        self._has_warned = False
        attempts.on_change(self._look_again)

    async def turn(self) -> float:
        """Claim rows for the free places and begin their attempts; returns the pause before the next turn."""
        was_idle = self._attempts.is_empty
        limit = int(min(self._attempts.free, self._left, MAX_ROWS))
        if limit <= 0:
            return self._wait_for_place(was_idle)
        claims = await self._claim(limit)
        self._left -= len(claims)
        self._may_find_more = len(claims) == limit
        for claim in claims:
            self._executor.start(claim)
        if was_idle and not claims and self._terms.until_idle:
            self.finished.set()
        return self._pause(found=bool(claims))

    def _wait_for_place(self, was_idle: bool) -> float:
        if was_idle:
            self.finished.set()  # every place is free, so it's the claims that are used up
        self._may_find_more = True
        return self._terms.poll_interval

    async def _claim(self, limit: int) -> Sequence[Claim]:
        paths = list(self._host.tasks)
        if not paths:
            self._warn()
            return []
        terms = self._terms
        request = ClaimRequest(
            worker_id=terms.worker_id,
            task_paths=paths,
            queues=terms.queues,
            limit=limit,
            lease_seconds=terms.lease_seconds,
            now=self._host.clock.now(),
        )
        return await self._host.store.claim(request)

    def _pause(self, *, found: bool) -> float:
        if found and self._may_find_more:
            return 0.0
        self._idle_turns = 0 if found else self._idle_turns + 1
        share: float = min(1.0, _SHORTEST_POLL * 2 ** min(self._idle_turns, 8))
        return uniform(0.75, 1) * share * self._terms.poll_interval

    def _look_again(self) -> None:
        has_end = self._terms.until_idle or self._left <= 0
        if self._may_find_more or (has_end and self._attempts.is_empty):
            self._wake.set()

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log(logging.WARNING, "worker_has_no_tasks", "no task is declared in this process: nothing can be claimed")
