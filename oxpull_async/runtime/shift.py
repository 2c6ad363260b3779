"""One run of a worker: its services put together, and their orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import ExitStack
from uuid import UUID

import anyio

from oxpull_async.core.leases import renewal_interval
from oxpull_async.exceptions import OxpullError
from oxpull_async.runtime.aside import Aside
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
from oxpull_async.runtime.supervisor import Member, Supervisor
from oxpull_async.runtime.verdicts import Judge
from oxpull_async.runtime.wakeups import WakeupListener
from oxpull_async.runtime.watch import Watch
from oxpull_async.telemetry import log


class Shift:
    """Claims, runs, renews, settles and reaps from ``start`` to ``end``."""

    def __init__(
        self,
        host: Host,
        terms: Terms,
        *,
        concurrency: int,
        grace: float,
        ready: asyncio.Event,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._host = host
        self._terms = terms
        self._reports = reports = Reports(host)
        outcomes = asyncio.Event()
        self._attempts = Attempts(concurrency)
        self._settler = Settler(host, outcomes, terms.lease_seconds)
        self._executor = Executor(
            self._attempts,
            Execution(host, concurrency),
            Judge(host, reports),
            self._settler,
            reports,
            grace,
            on_failure,
        )
        self._watch = Watch(self._attempts)
        self._claimer = Claimer(
            host,
            terms,
            self._attempts,
            self._executor,
            self._settler.pace,
            ready,
            is_paused=lambda: self._watch.is_slow,
        )
        self._reaper = Reaper(host, reports, terms.lease_seconds)
        self._claiming = Service("claimer", self._claimer.turn, wake=ready, longest_backoff=terms.poll_interval)
        self._listener = WakeupListener(host.store, host.ready_hints, host.announcer, host.batches.hear_sealed)
        self._renew_soon = asyncio.Event()
        self._leases = self._keeping_leases()
        self._hearing = ExitStack()
        members: list[Member] = [self._claiming, self._settling(outcomes), *self._standing(), self._leases]
        self._supervisor = Supervisor(members, host.health.roster)

    @property
    def ran(self) -> int:
        """How many attempts came to an outcome."""
        return self._executor.ran

    async def start(self) -> None:
        """Begin. A run that has an end frees expired rows first, and raises what keeps it from that."""
        if self._terms.until_idle:
            while not await self._reaper.turn():
                pass
        self._hearing.enter_context(self._host.announcer.cancels.heard_by(self._hear_cancelled))
        self._supervisor.start()

    async def finished(self) -> None:
        """Wait until the terms are met: nothing left to do, or as many claims as asked for."""
        await self._claimer.finished.wait()

    async def stuck(self) -> None:
        """Wait until a thread has outlived its time limit and its grace, so that only the process can end it."""
        await self._executor.stuck.wait()

    def stop_claiming(self) -> None:
        """Take no further row; a claim that is under way is the last."""
        self._claiming.stop()

    async def drained(self) -> None:
        """Claim no more, hand back what hasn't begun, and wait until all else has ended and is written."""
        self.stop_claiming()
        await self._claiming.ended.wait()
        await self._hand_back()
        await self._attempts.at_rest.wait()
        await self._attempts.nothing_to_write.wait()

    async def end(self, within: float) -> None:
        """Cancel what still runs and hand it back. What isn't done in time is left to its lease."""
        self.stop_claiming()
        self._hearing.close()
        self._executor.close()
        with anyio.move_on_after(within / 2):
            await self._claiming.ended.wait()
            await self._attempts.at_rest.wait()
        self._executor.take_away_late()
        with anyio.move_on_after(within / 2):
            await self._hand_back()
            await self._attempts.nothing_to_write.wait()
            await self._reports.end(within / 2)
        for attempt in self._attempts.present:
            mention_left_running(attempt)
        self._settler.close()
        await self._reports.end(0)
        await self._supervisor.stop()
        await self._listener.close()

    def _settling(self, outcomes: asyncio.Event) -> Service:
        longest_backoff = min(1.0, self._terms.lease_seconds / 10)
        return Service("settler", self._settler.turn, wake=outcomes, longest_backoff=longest_backoff)

    def _keeping_leases(self) -> Aside:
        heartbeat = Heartbeat(self._host.store, self._terms, self._attempts, self._host.exclusive.tasks)
        longest_backoff = renewal_interval(self._terms.lease_seconds) / 4
        services = [
            Service("heartbeat", heartbeat.turn, wake=self._renew_soon, longest_backoff=longest_backoff),
            Service("watch", self._watch.turn),
        ]
        return Aside(services, self._host.health.roster, heartbeat.close)

    def _hear_cancelled(self, task_ids: Collection[UUID]) -> None:
        """A renewal tells which attempts have lost their rows, and they are ended."""
        cancelled = set(task_ids)
        if any(at.claim.id in cancelled and at.interrupted is None for at in self._attempts.present):
            self._leases.set(self._renew_soon)

    def _standing(self) -> list[Service]:
        if self._terms.until_idle:
            return []
        services = [
            Service("reaper", self._reaper.turn),
            self._host.schedules.service(),
        ]
        if self._host.settings.notify and self._host.store.capabilities.notifications:
            services.append(Service("listener", self._listener.turn, wake=self._listener.lost))
        return services

    async def _hand_back(self) -> None:
        claims = self._executor.take_unrun()
        try:
            await self._claimer.recover()
            released = await self._host.store.release(claims, worker_id=self._terms.worker_id)
            await self._host.exclusive.tasks.release(claims)
        except OxpullError as error:
            log(
                logging.ERROR,
                "release_failed",
                f"{len(claims)} row(s) couldn't be handed back, and wait for their leases to run out: {error}",
                error=error,
            )
            return
        except asyncio.CancelledError:
            self._executor.keep_unrun(claims)
            raise
        if claims:
            self._host.ready_hints.enqueued()
            log(logging.INFO, "tasks_released", f"{len(released)} unfinished row(s) were handed back")
