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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Outcome, TaskRow
from oxpull_async.runtime.host import Host
from oxpull_async.telemetry import log

MAX_ROWS: Final = 500
MAX_CHARACTERS: Final = 1_000_000


@dataclass(eq=False, slots=True)
class _Entry:
    outcome: Outcome
    landed: asyncio.Future[bool]
    deadline: float
    tried: bool = False
    """An earlier write may have been committed although its reply was lost."""


class Settler:
    """A queue of outcomes, and the deed that writes them."""

    def __init__(self, host: Host, wake: asyncio.Event, patience_seconds: float) -> None:
        self._host = host
        self._wake = wake
        self._patience = patience_seconds
        self._entries: deque[_Entry] = deque()
        self._is_closed = False

    async def settle(self, outcome: Outcome) -> bool:
        """Whether the outcome landed: False where the lease was lost, or the database away for too long.

        Raises: StoreError where the database refuses this outcome as such.
        """
        landed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = _Entry(outcome, landed, time.monotonic() + self._patience)
        if self._is_closed:
            _give_up(entry)
        else:
            self._entries.append(entry)
            self._wake.set()
        return await landed

    async def turn(self) -> float:
        """Write what has gathered. Raises: StoreError where that must be tried again."""
        await asyncio.sleep(0)  # those who end together are written together
        batch = self._take()
        if not batch:
            return math.inf
        try:
            await self._write(batch)
        finally:
            self._put_back(batch)
        return 0.0

    def close(self) -> None:
        """Give up what isn't written, and whatever comes from now on."""
        self._is_closed = True
        while self._entries:
            _give_up(self._entries.popleft())

    def _take(self) -> list[_Entry]:
        batch: dict[UUID, _Entry] = {}
        characters = 0
        while self._entries and len(batch) < MAX_ROWS and characters < MAX_CHARACTERS:
            outcome = self._entries[0].outcome
            if outcome.id in batch:
                break  # another grant of the same row: the answer names rows, not grants
            batch[outcome.id] = self._entries.popleft()
            characters += len(outcome.errors) + len(outcome.settlement.return_value or "")
        return list(batch.values())

    def _put_back(self, batch: list[_Entry]) -> None:
        left = [entry for entry in batch if not entry.landed.done()]
        for entry in reversed(left):
            if self._is_closed or time.monotonic() > entry.deadline:
                _give_up(entry)
            else:
                self._entries.appendleft(entry)

    async def _write(self, batch: list[_Entry]) -> None:
        try:
            landed = set(await self._host.store.settle([entry.outcome for entry in batch]))
        except StoreError as error:
            for entry in batch:
                entry.tried = True
            if error.transient:
                raise
            await self._write_apart(batch, error)
        else:
            await self._answer(batch, landed)

    async def _write_apart(self, batch: list[_Entry], error: StoreError) -> None:
        """One of them is refused; find out which, so that the others land."""
        if len(batch) == 1:
            _resolve(batch[0], error)
            return
        for entry in batch:
            await self._write([entry])

    async def _answer(self, batch: list[_Entry], landed: set[UUID]) -> None:
        missing = [entry for entry in batch if entry.outcome.id not in landed]
        rows = await self._rows(entry.outcome.id for entry in missing if entry.tried)
        landed |= {entry.outcome.id for entry in missing if _is_written(entry.outcome, rows)}
        self._hint([entry.outcome for entry in batch if entry.outcome.id in landed])
        for entry in batch:
            if entry.outcome.id not in landed:
                _log_lost_lease(entry.outcome)
            _resolve(entry, entry.outcome.id in landed)

    async def _rows(self, task_ids: Iterable[UUID]) -> dict[UUID, TaskRow]:
        ids = list(task_ids)
        return {row.id: row for row in await self._host.store.get_tasks(ids)} if ids else {}

    def _hint(self, landed: list[Outcome]) -> None:
        now = self._host.clock.now()
        self._host.settle_hints.settled(outcome.id for outcome in landed if outcome.settlement.finishes)
        if any(outcome.run_after is not None and outcome.run_after <= now for outcome in landed):
            self._host.ready_hints.enqueued()


def _is_written(outcome: Outcome, rows: Mapping[UUID, TaskRow]) -> bool:
    """Whether the row is just as this outcome leaves it: an earlier write of ours, its reply lost."""
    row = rows.get(outcome.id)
    if row is None or (row.lease_epoch, row.status) != (outcome.lease_epoch, outcome.settlement.status):
        return False
    if outcome.settlement.finishes:
        return row.finished_at == outcome.finished_at
    return row.run_after == outcome.run_after


def _resolve(entry: _Entry, answer: bool | StoreError) -> None:
    if entry.landed.done():  # whoever waited was cancelled
        return
    if isinstance(answer, StoreError):
        entry.landed.set_exception(answer)
    else:
        entry.landed.set_result(answer)


def _give_up(entry: _Entry) -> None:
    if not entry.landed.done():
        log(
            logging.ERROR,
            "task_outcome_unrecorded",
            f"the outcome of task {entry.outcome.id} ({entry.outcome.settlement.status}) couldn't be written",
            task_id=str(entry.outcome.id),
        )
        entry.landed.set_result(False)


def _log_lost_lease(outcome: Outcome) -> None:
    log(
        logging.WARNING,
        "task_lease_lost",
        f"task {outcome.id} had lost its lease; its outcome ({outcome.settlement.status}) is dropped",
        task_id=str(outcome.id),
        lease_epoch=outcome.lease_epoch,
    )
