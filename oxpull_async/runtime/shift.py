"""One run of a worker: its services put together, and their orderly end."""

from __future__ import annotations

import asyncio
import logging

import anyio

from oxpull_async.core.leases import renewal_interval
from oxpull_async.exceptions import OxpullError
from oxpull_async.runtime.attempts import Attempts
from oxpull_async.runtime.claimer import Claimer, Terms
from oxpull_async.runtime.execution import Execution
from oxpull_async.runtime.executor import Executor, OnFailure, mention_left_running
from oxpull_async.runtime.heartbeat import Heartbeat
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reaper import Reaper
from oxpull_async.runtime.reports import Reports
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.settler import Settler
from oxpull_async.runtime.supervisor import Supervisor
from oxpull_async.runtime.verdicts import Judge
from oxpull_async.telemetry import log


class Shift:
    """Claims, runs, renews, settles and reaps from ``start`` to ``end``."""

    def __init__(
        self,
        host: Host,
        terms: Terms,
        *,
        concurrency: int,
        ready: asyncio.Event,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._host = host
        self._terms = terms
        reports = Reports(host)
        outcomes = asyncio.Event()
        self._attempts = Attempts(concurrency)
        self._settler = Settler(host, outcomes, terms.lease_seconds)
        self._executor = Executor(
            self._attempts,
            Execution(host, concurrency),
            Judge(host, reports),
            self._settler,
            reports,
            on_failure,
        )
        self._claimer = Claimer(host, terms, self._attempts, self._executor, ready)
        self._reaper = Reaper(host, reports, terms.lease_seconds)
        self._claiming = Service("claimer", self._claimer.turn, wake=ready, longest_backoff=terms.poll_interval)
        self._supervisor = Supervisor([self._claiming, *self._others(outcomes)], host.health.roster)

    @property
    def ran(self) -> int:
        """How many attempts came to an outcome."""
        return self._executor.ran

    async def start(self) -> None:
        """Begin. A run that has an end frees expired rows first, and raises what keeps it from that."""
        if self._terms.until_idle:
            while not await self._reaper.turn():
                pass
        self._supervisor.start()

    async def finished(self) -> None:
        """Wait until the terms are met: nothing left to do, or as many claims as asked for."""
        await self._claimer.finished.wait()

    def stop_claiming(self) -> None:
        """Take no further row; a claim that is under way is the last."""
        self._claiming.stop()

    async def drained(self) -> None:
        """Claim no more, and wait until everything claimed has ended and is written."""
        self.stop_claiming()
        await self._claiming.ended.wait()
        await self._attempts.at_rest.wait()
        await self._attempts.nothing_to_write.wait()

    async def end(self, within: float) -> None:
        """Cancel what still runs and hand it back. What isn't done in time is left to its lease."""
        self.stop_claiming()
        self._executor.close()
        with anyio.move_on_after(within / 2):
            await self._claiming.ended.wait()
            await self._attempts.at_rest.wait()
        with anyio.move_on_after(within / 2):
            await self._hand_back()
            await self._attempts.nothing_to_write.wait()
        for attempt in self._attempts.present:
            mention_left_running(attempt)
        self._settler.close()
        await self._supervisor.stop()

    def _others(self, outcomes: asyncio.Event) -> list[Service]:
        lease_seconds = self._terms.lease_seconds
        renewal = renewal_interval(lease_seconds)
        heartbeat = Heartbeat(self._host, self._terms, self._attempts)
        services = [
            Service("settler", self._settler.turn, wake=outcomes, longest_backoff=min(1.0, lease_seconds / 10)),
            Service("heartbeat", heartbeat.turn, longest_backoff=renewal / 4),
        ]
        if not self._terms.until_idle:
            services.append(Service("reaper", self._reaper.turn))
            services.append(self._host.schedules.service())
        return services

    async def _hand_back(self) -> None:
        claims = self._executor.take_unrun()
        if not claims:
            return
        try:
            released = await self._host.store.release(claims, worker_id=self._terms.worker_id)
        except OxpullError as error:
            log(
                logging.ERROR,
                "release_failed",
                f"{len(claims)} row(s) couldn't be handed back, and wait for their leases to run out: {error}",
                error=error,
            )
            return
        self._host.ready_hints.enqueued()
        log(logging.INFO, "tasks_released", f"{len(released)} unfinished row(s) were handed back")
