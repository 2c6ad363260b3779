"""Deletes what was settled long ago: a chunk at a time, in one process of all that are asked to."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from random import uniform
from typing import Final, Protocol

from oxpull_async.clock import Clock
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.ports import Pruned, Store
from oxpull_async.runtime.batch_pruning import prune_batch_chunk
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


@dataclass(frozen=True, slots=True)
class Ages:
    """From how many seconds on what is deleted; None for never."""

    settled: float | None = None
    batches: float | None = None

    @property
    def are_set(self) -> bool:
        """Whether anything is deleted at all."""
        return self.settled is not None or self.batches is not None


def ages_of(settled: Duration | None, batches: Duration | None) -> Ages:
    """Ages as users give them. Raises: TypeError, ValueError."""
    return Ages(
        None if settled is None else seconds(settled, "prune_older_than"),
        None if batches is None else seconds(batches, "prune_batches_older_than"),
    )


class Pruner:
    """One chunk per turn; after a full one the next comes soon. The others stand by for as long as one leads."""

    def __init__(self, host: PruneHost, ages: Ages) -> None:
        self._host = host
        self._ages = ages
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
        if await self._prune_chunk():
            return _BREATH_SECONDS
        self._tell()
        return uniform(0.8, 1) * _PAUSE_SECONDS

    async def _prune_chunk(self) -> bool:
        """Whether there may be more."""
        is_full = are_full = False
        now = self._host.clock.now()
        if self._ages.batches is not None:
            completed_before = now - timedelta(seconds=self._ages.batches)
            batches, are_full = await prune_batch_chunk(self._host.store, completed_before)
            self._pruned = added(self._pruned, Pruned(0, 0, batches=batches))
        if self._ages.settled is not None:
            done, is_full = await self._upkeep.prune_chunk(now - timedelta(seconds=self._ages.settled))
            self._pruned = added(self._pruned, done)
        return is_full or are_full

    def _tell(self) -> None:
        pruned, self._pruned = self._pruned, Pruned(0, 0)
        if pruned != self._pruned:
            log(
                logging.INFO,
                "rows_pruned",
                f"pruned {pruned.tasks} task(s), {pruned.locks} lock(s), {pruned.ticks} tick(s) "
                f"and {pruned.batches} batch(es)",
                tasks=pruned.tasks,
                locks=pruned.locks,
                ticks=pruned.ticks,
                batches=pruned.batches,
            )
