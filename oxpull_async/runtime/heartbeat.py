"""Extends the leases of the rows that a worker is at, and notices those it has lost."""

from __future__ import annotations

import logging
import time

from oxpull_async.core.leases import renewal_interval
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.claimer import Terms
from oxpull_async.runtime.host import Host
from oxpull_async.telemetry import log


class Heartbeat:
    """One statement per turn renews every lease, three times within its length."""

    def __init__(self, host: Host, terms: Terms, attempts: Attempts) -> None:
        self._host = host
        self._terms = terms
        self._attempts = attempts

    async def turn(self) -> float:
        """Renew; returns the pause until the next renewal, counted from this one's beginning."""
        began = time.monotonic()
        await self._renew()
        return max(renewal_interval(self._terms.lease_seconds) - (time.monotonic() - began), 0.01)

    async def _renew(self) -> None:
        held = self._attempts.present
        if not held:
            return
        renewed = set(
            await self._host.store.renew(
                [attempt.claim for attempt in held],
                worker_id=self._terms.worker_id,
                lease_seconds=self._terms.lease_seconds,
            )
        )
        missing = [attempt for attempt in held if attempt.claim.id not in renewed and attempt.is_running]
        if missing:
            await self._check(missing)

    async def _check(self, missing: list[Attempt]) -> None:
        """Only a moved epoch is a lost lease. A LOST row may still be settled by us, who lost it."""
        rows = await self._host.store.get_tasks([attempt.claim.id for attempt in missing])
        epochs = {row.id: row.lease_epoch for row in rows}
        for attempt in missing:
            if epochs.get(attempt.claim.id, 0) > attempt.claim.lease_epoch and attempt.is_running:
                _log(attempt)
                attempt.interrupt(Interruption.LEASE_LOST)


def _log(attempt: Attempt) -> None:
    claim = attempt.claim
    log(
        logging.WARNING,
        "task_lease_lost",
        f"task {claim.task_path} ({claim.id}) has lost its lease while it ran; it's cancelled",
        task_path=claim.task_path,
        task_id=str(claim.id),
        lease_epoch=claim.lease_epoch,
    )
