"""The reconciler's loop: hints at once, sweeps every second by one process, every ten by all the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import uniform
from typing import Final
from uuid import UUID

import anyio

from oxpull_async.exceptions import OxpullError
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.runtime.leader import Leader
from oxpull_async.runtime.reconciler import Reconciler
from oxpull_async.runtime.roster import Roster
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.supervisor import Supervisor

LEADING_SECONDS: Final = 1.0
BUSY_SECONDS: Final = 2.0
FOLLOWING_SECONDS: Final = (10.0, 15.0)
_LONGEST_STOP: Final = 5.0
_STAND_DOWN_SECONDS: Final = 1.0


class ReconcilerLoop:
    """Runs while somebody holds it: the lifespan, a worker, or both at once."""

    def __init__(self, reconciler: Reconciler, leader: Leader, settled: SettleHints, roster: Roster) -> None:
        self.service: Service | None = None
        """Counts its failures; None while it doesn't run."""
        self._reconciler = reconciler
        self._leader = leader
        self._settled = settled
        self._roster = roster
        self._wake = asyncio.Event()
        self._holders = 0
        self._supervisor: Supervisor | None = None
        self._last_sweep = self._next_sweep = 0.0
        self._is_busy = False
        self._has_hints = False
        self._following = FOLLOWING_SECONDS[0]
        self._listening = contextlib.ExitStack()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """At work for as long as the block lasts; blocks that overlap share it."""
        self._holders += 1
        if self._holders == 1:
            self._start()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                await self._stop()

    def hear_sealed(self, batch_id: UUID) -> None:
        """A batch was sealed, here or, as a notification says, elsewhere."""
        if self._supervisor is not None:
            self._reconciler.hear_sealed(batch_id)
            self._hint()

    def _start(self) -> None:
        self._wake = asyncio.Event()
        self._last_sweep = self._next_sweep = 0.0
        self.service = Service("reconciler", self._turn, wake=self._wake, longest_stop=_LONGEST_STOP)
        self._supervisor = Supervisor([self.service], self._roster)
        self._listening.enter_context(self._settled.heard_by(self._hear_settled))
        self._supervisor.start()

    async def _stop(self) -> None:
        supervisor, self._supervisor, self.service = self._supervisor, None, None
        self._listening.close()
        if supervisor is not None:
            await supervisor.stop()
        with contextlib.suppress(OxpullError, TimeoutError):
            with anyio.fail_after(_STAND_DOWN_SECONDS):
                await self._leader.stand_down()

    def _hear_settled(self, task_ids: Collection[UUID]) -> None:
        if self._reconciler.hear_settled(task_ids):
            self._hint()
        elif not self._is_busy and task_ids:
            self._is_busy = True
            self._wake.set()

    def _hint(self) -> None:
        self._has_hints = True
        self._wake.set()

    async def _turn_once(self) -> bool:
        """Sweep if that's due, else act on hints; False: there is more to do."""
        if time.monotonic() < self._next_sweep:
            self._has_hints = False
            return await self._reconciler.act_on_hints()
        self._is_busy = self._has_hints = False
        self._last_sweep = time.monotonic()
        self._following = uniform(*FOLLOWING_SECONDS)
        return await self._reconciler.sweep()

    async def _turn(self) -> float:
        await self._leader.attend()
        is_done = True
        if self._has_hints or min(self._next_sweep, self._reconciler.next_due) <= time.monotonic():
            is_done = await self._turn_once()
        self._next_sweep = self._last_sweep + self._interval()
        if not is_done:
            return 0.0
        due = min(self._next_sweep, self._leader.next_attempt, self._reconciler.next_due)
        return max(due - time.monotonic(), 0.001)

    def _interval(self) -> float:
        """A worker that settles rows looks out for batches sealed elsewhere: they may be waiting for just these."""
        if self._leader.leads:
            return LEADING_SECONDS
        return BUSY_SECONDS if self._is_busy else self._following
