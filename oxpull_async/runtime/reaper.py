"""Frees the rows of workers that are gone."""

from __future__ import annotations

import logging
from random import uniform

from oxpull_async.core.leases import REAP_LIMIT, reap_interval
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reports import Reports
from oxpull_async.runtime.upkeep import Upkeep
from oxpull_async.telemetry import log


class Reaper:
    """One pass per turn; a full one is followed by the next at once."""

    def __init__(self, host: Host, reports: Reports, lease_seconds: float) -> None:
        self._upkeep = Upkeep(lambda: host.store, host.settle_hints, host.ready_hints, host.clock)
        self._reports = reports
        self._lease_seconds = lease_seconds

    async def turn(self) -> float:
        """Reap; returns the pause before the next pass."""
        reaped = await self._upkeep.reap(self._lease_seconds)
        taken = [*reaped.requeued, *reaped.lost]
        if taken:
            log(
                logging.WARNING,
                "tasks_reclaimed",
                f"{len(reaped.requeued)} row(s) of dead workers are READY again, {len(reaped.lost)} are LOST",
                requeued=[str(task_id) for task_id in reaped.requeued],
                lost=[str(task_id) for task_id in reaped.lost],
            )
            await self._reports.reclaimed(taken)
        return 0.0 if len(taken) >= REAP_LIMIT else uniform(0.8, 1) * reap_interval(self._lease_seconds)
