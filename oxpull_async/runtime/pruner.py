"""Deletes what was settled long ago: a chunk at a time, in one process of all that are asked to."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from random import uniform
from typing import Final, Protocol

from oxpull_async.clock import Clock
from oxpull_async.ports import Pruned, Store
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.runtime.identity import OwnName
from oxpull_async.runtime.leader import Leader
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.upkeep import Upkeep, added
from oxpull_async.telemetry import log

_ROLE: Final = "pruner"
_LEASE_SECONDS: Final = 180.0
_PAUSE_SECONDS: Final = 60.0
_BREATH_SECONDS: Final = 0.1
"""Between two chunks, for those who wait for a lock or a disk."""


class PruneHost(Protocol):
    """What this needs of an ``Oxpull``."""

    @property
    def store(self) -> Store:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def settle_hints(self) -> SettleHints:
        """Tells waiters that a row was settled."""
        ...

    @property
    def ready_hints(self) -> ReadyHints:
        """Tells workers that a row was enqueued."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...


class Pruner:
    """One chunk per turn; after a full one the next comes soon. The others stand by for as long as one leads."""

    def __init__(self, host: PruneHost, older_than_seconds: float) -> None:
        self._clock = host.clock
        self._older_than = timedelta(seconds=older_than_seconds)
        self._upkeep = Upkeep(lambda: host.store, host.settle_hints, host.ready_hints, host.clock)
        self._leader = Leader(lambda: host.store, lambda: _ROLE, OwnName(), _LEASE_SECONDS)
        self._pruned = Pruned(0, 0)

    def service(self) -> Service:
        """What takes the turns."""
        return Service("pruner", self.turn)

    async def turn(self) -> float:
        """Delete a chunk if it's ours to do; returns the pause before the next turn."""
        if not await self._leader.attend():
            return max(self._leader.next_attempt - time.monotonic(), _BREATH_SECONDS)
        done, is_full = await self._upkeep.prune_chunk(self._clock.now() - self._older_than)
        self._pruned = added(self._pruned, done)
        if is_full:
            return _BREATH_SECONDS
        self._tell()
        return uniform(0.8, 1) * _PAUSE_SECONDS

    def _tell(self) -> None:
        pruned, self._pruned = self._pruned, Pruned(0, 0)
        if pruned != self._pruned:
            log(
                logging.INFO,
                "rows_pruned",
                f"pruned {pruned.tasks} task(s), {pruned.locks} lock(s) and {pruned.ticks} tick(s)",
                tasks=pruned.tasks,
                locks=pruned.locks,
                ticks=pruned.ticks,
            )
