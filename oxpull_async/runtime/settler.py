"""Writes outcomes, many at once, each fenced on its own.

The first outcome is written at once; those that come while a write is under
way are written together by the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from oxpull_async.core.statuses import OUTCOME_WRITABLE
from oxpull_async.exceptions import ConnectionLost, PoolTimeout, StoreError
from oxpull_async.ports import Outcome, TaskRow
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.pace import Pace
from oxpull_async.telemetry import log

MAX_ROWS: Final = 500
MAX_CHARACTERS: Final = 1_000_000
_LOCKED_SECONDS: Final = 0.05
"""How long to wait where all that is left is locked by others."""


class Recipient(Protocol):
    """Who is told what became of outcomes."""

    def landed(self, attempts: Sequence[Attempt]) -> None:
        """They are written."""

    def dropped(self, attempts: Sequence[Attempt]) -> None:
        """They never will be: the lease was lost, or the database away for too long."""

    def refused(self, attempt: Attempt, error: StoreError) -> None:
        """The database can't store this outcome as such."""


class Settler:
    """A queue of attempts with their outcomes, and the deed that writes these."""

    def __init__(self, host: Host, wake: asyncio.Event, patience_seconds: float) -> None:
        self.pace: Pace = Pace()
        self._host = host
        self._wake = wake
        self._patience = patience_seconds
        self._queue: deque[Attempt] = deque()
        self._recipient: Recipient | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False

    def tell(self, recipient: Recipient) -> None:
        """Tell this one from now on."""
        self._recipient = recipient

    def put(self, attempt: Attempt) -> None:
        """Write the attempt's outcome soon."""
        if self._is_closed:
            self._give_up([attempt])
        else:
            self._queue.append(attempt)
            self._wake.set()

    async def turn(self) -> float:
        """Write what has gathered; returns the pause before the next write.

        Raises: StoreError where all of it must be tried again.
        """
        await asyncio.sleep(0)  # those who end together are written together
        batch = self._take()
        if not batch:
            return math.inf
        unwritten = dict.fromkeys(batch)
        try:
            await self._write(batch, unwritten)
        finally:
            self._put_back(list(unwritten))
        return 0.0 if len(unwritten) < len(self._queue) else _LOCKED_SECONDS if unwritten else 0.0

    def close(self) -> None:
        """Give up what isn't written, and whatever comes from now on."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        left, self._queue = list(self._queue), deque()
        self._give_up(left)

    def _take(self) -> list[Attempt]:
        batch: dict[UUID, Attempt] = {}
        characters = 0
        while self._queue and len(batch) < MAX_ROWS and characters < MAX_CHARACTERS:
            outcome = _outcome(self._queue[0])
            if outcome.id in batch:
                break  # two grants of one row: one statement could write only one of them
            characters += len(outcome.settlement.return_value or "") + len(outcome.errors)
            batch[outcome.id] = self._queue.popleft()
        return list(batch.values())

    def _put_back(self, unwritten: list[Attempt]) -> None:
        now = time.monotonic()
        late = [attempt for attempt in unwritten if self._is_closed or now > (attempt.settle_until or math.inf)]
        self._queue.extendleft(reversed([attempt for attempt in unwritten if attempt not in late]))
        self._give_up(late)

    async def _write(self, batch: list[Attempt], unwritten: dict[Attempt, None]) -> None:
        try:
            releasing = self._host.exclusive.tasks.let_go(attempt.claim for attempt in batch)
            landed = set(await self._host.store.settle([_outcome(attempt) for attempt in batch]))
            if releasing is not None:
                await releasing
        except StoreError as error:
            is_first = all(attempt.settle_until is None for attempt in batch)
            self._note_try(batch)
            if error.transient and (is_first or isinstance(error, (ConnectionLost, PoolTimeout))):
                raise
            await self._write_apart(batch, unwritten, error)
        else:
            await self._answer(batch, landed, unwritten)

    async def _write_apart(self, batch: list[Attempt], unwritten: dict[Attempt, None], error: StoreError) -> None:
        """One of them is refused, or fails again and again; find out which, so that the others land."""
        if len(batch) > 1:
            for attempt in batch:
                await self._write([attempt], unwritten)
        elif not error.transient:
            unwritten.pop(batch[0], None)
            self._told().refused(batch[0], error)

    async def _answer(self, batch: list[Attempt], landed: set[UUID], unwritten: dict[Attempt, None]) -> None:
        lost: list[Attempt] = []
        if len(landed) < len(batch):
            missing = [attempt for attempt in batch if attempt.claim.id not in landed]
            rows = await self._rows(attempt.claim.id for attempt in missing)
            for attempt in missing:
                if _is_written(_outcome(attempt), rows.get(attempt.claim.id)):
                    landed.add(attempt.claim.id)
                elif not _is_ours(_outcome(attempt), rows.get(attempt.claim.id)):
                    lost.append(attempt)
            self._note_try([attempt for attempt in missing if attempt.claim.id not in landed])
        written = [attempt for attempt in batch if attempt.claim.id in landed]
        for attempt in (*written, *lost):
            del unwritten[attempt]
        self._announce(written, lost)

    def _announce(self, written: list[Attempt], lost: list[Attempt]) -> None:
        self.pace.note(len(written))
        if any(self._host.limits.places.are_in(attempt.claim.queue_name) for attempt in (*written, *lost)):
            self._host.ready_hints.enqueued()
        self._hint([_outcome(attempt) for attempt in written])
        for attempt in lost:
            _log_lost_lease(_outcome(attempt))
        self._told().landed(written)
        self._told().dropped(lost)

    def _note_try(self, attempts: Iterable[Attempt]) -> None:
        until = time.monotonic() + self._patience
        for attempt in attempts:
            attempt.settle_until = attempt.settle_until or until

    async def _rows(self, task_ids: Iterable[UUID]) -> dict[UUID, TaskRow]:
        ids = list(task_ids)
        return {row.id: row for row in await self._host.store.get_tasks(ids)} if ids else {}

    def _hint(self, landed: list[Outcome]) -> None:
        self._host.settle_hints.settled(outcome.id for outcome in landed if outcome.settlement.finishes)
        if any(outcome.may_rerun for outcome in landed):
            self._host.ready_hints.wake()
        due = [outcome.run_after for outcome in landed if outcome.run_after is not None]
        if due:
            self._ring_at(min(due))

    def _ring_at(self, due: datetime) -> None:
        """Have the row looked for when it's due; those due later will be seen then."""
        loop = asyncio.get_running_loop()
        at = loop.time() + (due - self._host.clock.now()).total_seconds()
        if self._alarm is None or at < self._alarm.when() or self._alarm.when() < loop.time():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(at, self._host.ready_hints.wake)

    def _give_up(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            _log_unwritten(_outcome(attempt))
        self._told().dropped(attempts)

    def _told(self) -> Recipient:
        assert self._recipient is not None
        return self._recipient


def _outcome(attempt: Attempt) -> Outcome:
    assert attempt.outcome is not None
    return attempt.outcome


def _is_written(outcome: Outcome, row: TaskRow | None) -> bool:
    """Whether the row is just as this outcome leaves it: an earlier write of ours, its reply lost."""
    moved = outcome.takes_row_away or outcome.settlement.refunds
    if row is None or (row.lease_epoch, row.status) != (outcome.lease_epoch + moved, outcome.settlement.status):
        return False
    if outcome.settlement.finishes:
        return row.finished_at == outcome.finished_at
    return row.run_after == outcome.run_after


def _is_ours(outcome: Outcome, row: TaskRow | None) -> bool:
    """Whether the outcome may still be written: somebody keeps the row locked, or did."""
    return row is not None and row.lease_epoch == outcome.lease_epoch and row.status in OUTCOME_WRITABLE


def _log_unwritten(outcome: Outcome) -> None:
    log(
        logging.ERROR,
        "task_outcome_unrecorded",
        f"the outcome of task {outcome.id} ({outcome.settlement.status}) couldn't be written",
        task_id=str(outcome.id),
    )


def _log_lost_lease(outcome: Outcome) -> None:
    log(
        logging.WARNING,
        "task_lease_lost",
        f"task {outcome.id} had lost its lease; its outcome ({outcome.settlement.status}) is dropped",
        task_id=str(outcome.id),
        lease_epoch=outcome.lease_epoch,
    )
