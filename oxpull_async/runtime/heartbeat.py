"""Extends the leases of the rows that a worker is at, and notices those it has lost."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack

import anyio

from oxpull_async._links import LeaseKeeper
from oxpull_async.core.leases import renewal_interval
from oxpull_async.ports import Store
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.claimer import Terms
from oxpull_async.runtime.exclusive_tasks import ExclusiveTasks
from oxpull_async.telemetry import log


class Heartbeat:
    """One statement per turn renews every lease, three times within its length.

    Made in the event loop of the attempts; its turns are taken in another
    thread, over a connection of its own.
    """

    def __init__(self, store: Store, terms: Terms, attempts: Attempts, exclusive: ExclusiveTasks) -> None:
        self._store = store
        self._terms = terms
        self._attempts = attempts
        self._exclusive = exclusive
        self._loop = asyncio.get_running_loop()
        self._connection = AsyncExitStack()
        self._keeper: LeaseKeeper | None = None

    async def turn(self) -> float:
        """Renew; returns the pause until the next renewal, counted from this one's beginning."""
        began = time.monotonic()
        held = [attempt for attempt in self._attempts.present if _is_kept(attempt, began)]
        if held:
            try:
                with anyio.fail_after(max(renewal_interval(self._terms.lease_seconds), 1.0)):
                    await self._renew(await self._connected(), held)
            except BaseException:
                await self.close()
                raise
        return max(renewal_interval(self._terms.lease_seconds) - (time.monotonic() - began), 0.01)

    async def close(self) -> None:
        """Let go of the connection."""
        self._keeper = None
        await self._connection.aclose()

    async def _connected(self) -> LeaseKeeper:
        if self._keeper is None:
            self._keeper = await self._connection.enter_async_context(self._store.lease_keeper())
        return self._keeper

    async def _renew(self, keeper: LeaseKeeper, held: list[Attempt]) -> None:
        terms = self._terms
        claims = [attempt.claim for attempt in held]
        held_until = time.monotonic() + terms.lease_seconds
        renewed = set(await keeper.renew(claims, worker_id=terms.worker_id, lease_seconds=terms.lease_seconds))
        for attempt in held:
            if attempt.claim.id in renewed:
                attempt.held_until = held_until
        missing = [attempt for attempt in held if attempt.claim.id not in renewed and attempt.is_running]
        if missing:
            await self._check(keeper, missing)
        lost = await self._exclusive.renew(keeper, claims)
        for attempt in held if lost else ():
            if attempt.claim.id in lost:
                self._loop.call_soon_threadsafe(_give_up, attempt)

    async def _check(self, keeper: LeaseKeeper, missing: list[Attempt]) -> None:
        """Only a moved epoch is a lost lease. A LOST row may still be settled by us, who lost it."""
        rows = await keeper.get_tasks([attempt.claim.id for attempt in missing])
        epochs = {row.id: row.lease_epoch for row in rows}
        for attempt in missing:
            if epochs.get(attempt.claim.id, 0) > attempt.claim.lease_epoch:
                self._loop.call_soon_threadsafe(_give_up, attempt)


def _is_kept(attempt: Attempt, now: float) -> bool:
    """Whether to renew: what can't even be ended when its time is over isn't held for ever."""
    unrenewed_from = attempt.unrenewed_from
    return unrenewed_from is None or now < unrenewed_from


def _give_up(attempt: Attempt) -> None:
    if not attempt.is_running:
        return
    if not attempt.has_begun:
        attempt.interrupt(Interruption.LEASE_LOST)  # told of when it would begin
        return
    claim = attempt.claim
    log(
        logging.WARNING,
        "task_lease_lost",
        f"task {claim.task_path} ({claim.id}) has lost its lease while it ran; it's cancelled",
        task_path=claim.task_path,
        task_id=str(claim.id),
        lease_epoch=claim.lease_epoch,
    )
    attempt.interrupt(Interruption.LEASE_LOST)
