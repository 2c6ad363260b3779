"""Single passes that keep the tables in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.exclusivity import IDLE_SECONDS
from oxpull_async.core.leases import REAP_LIMIT
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.ports import Pruned, Reaped, Store
from oxpull_async.runtime.batch_pruning import prune_batches
from oxpull_async.runtime.hints import ReadyHints, SettleHints

_PRUNABLE = (TaskStatus.SUCCESSFUL, TaskStatus.DISCARDED)
_FAILED = (TaskStatus.FAILED, TaskStatus.LOST)
PRUNE_CHUNK: Final = 1000


class Upkeep:
    """Reaping and pruning over the open store."""

    def __init__(self, store: Callable[[], Store], settled: SettleHints, ready: ReadyHints, clock: Clock) -> None:
        self._store = store
        self._settled = settled
        self._ready = ready
        self._clock = clock

    async def reap(self, lease_seconds: float) -> Reaped:
        """One pass, within one transaction."""
        now = self._clock.now()
        reap = partial(self._store().reap, lease_seconds=lease_seconds, limit=REAP_LIMIT, now=now)
        reaped = await retrying(reap)
        self._settled.settled(reaped.lost)
        if reaped.requeued:
            self._ready.enqueued()
        return reaped

    async def prune(
        self, older_than_seconds: float, *, include_failed: bool, batches_older_than_seconds: float | None = None
    ) -> Pruned:
        """Chunk by chunk, until a pass finds less than a chunk."""
        batches = 0
        if batches_older_than_seconds is not None:
            completed_before = self._clock.now() - timedelta(seconds=batches_older_than_seconds)
            batches = await prune_batches(self._store(), completed_before)
        before = self._clock.now() - timedelta(seconds=older_than_seconds)
        total = Pruned(0, 0, batches=batches)
        while True:
            done, is_full = await self.prune_chunk(before, include_failed=include_failed)
            total = added(total, done)
            if not is_full:
                return total

    async def prune_chunk(self, finished_before: datetime, *, include_failed: bool = False) -> tuple[Pruned, bool]:
        """At most a thousand of each kind; returns what was deleted, and whether there may be more."""
        store, limit = self._store(), PRUNE_CHUNK
        statuses = _PRUNABLE + _FAILED if include_failed else _PRUNABLE
        done = await retrying(partial(store.prune, statuses=statuses, finished_before=finished_before, limit=limit))
        holds = await retrying(partial(store.keys.prune_holds, now=self._clock.now(), limit=limit))
        keys = await retrying(partial(store.exclusive.forget_idle, idle_seconds=IDLE_SECONDS, limit=limit))
        done = replace(done, locks=done.locks + holds, keys=keys)
        return done, max(astuple(done)) >= limit


def added(one: Pruned, other: Pruned) -> Pruned:
    """Both together."""
    return Pruned(*map(sum, zip(astuple(one), astuple(other), strict=True)))
