"""How many batches are under way, which of them are stuck, and whether somebody completes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.batches import SCAN_PAGE
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.exceptions import InvalidTask
from oxpull_async.ports import Store
from oxpull_async.ports_batches import BatchStore, SealedBatch
from oxpull_async.runtime.batch_reads import RepeatedReads
from oxpull_async.runtime.callbacks import Callbacks
from oxpull_async.runtime.reconciler import ROLE_PREFIX, Reconciler, unknown_words
from oxpull_async.runtime.witnesses import Waiting, Witnesses

LIMIT: Final = 10_000
"""Up to how many batches of a status are counted."""
LOOKED_AT: Final = 100
"""How many sealed batches, the oldest ones, are asked whether they are stuck."""

_WIDE: Final = 2 * SCAN_PAGE
_BELIEVED_SECONDS: Final = 30.0
_LATELY: Final = timedelta(minutes=1)
_ELSEWHERE: Final = timedelta(minutes=3)
"""So long batches that others complete may wait for them: a Django fleet looks once a minute, and leaves no trace."""


class StuckBatch(BaseModel):
    """A SEALED batch that no member holds open, and what keeps this process from completing it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: UUID
    created_at: datetime
    reason: str


class BatchStats(BaseModel):
    """The batches that aren't COMPLETE, at one moment."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    open: int
    """Batches that still take members, counted up to 10,000."""
    oldest_open_at: datetime | None
    """When the oldest of them was created. One that is older than any filling takes was never sealed."""
    sealed: int
    """Batches that wait for their members, counted up to 10,000."""
    oldest_sealed_at: datetime | None
    """When the oldest of them was created."""
    stuck: tuple[StuckBatch, ...]
    """Those among the 100 oldest sealed ones that no member holds open, and that this process couldn't complete."""
    last_led: datetime | None
    """Until when a process has last taken it upon itself to complete batches; None: none ever has."""


class BatchFigures:
    """Reads the figures. What it has learnt of sealed batches saves the next look from reading their members again."""

    def __init__(
        self, store: Callable[[], Store], callbacks: Callbacks, reconciler: Reconciler, clock: Clock, *, elsewhere: bool
    ) -> None:
        self._store = store
        self._patience = _ELSEWHERE if elsewhere else timedelta(0)
        self._idle_since: dict[UUID, datetime] = {}
        self._callbacks = callbacks
        self._reconciler = reconciler
        self._clock = clock
        self._seen = Witnesses()

    async def read(self) -> BatchStats:
        """The figures now. Three statements where no batch is sealed, else two more, and a few for each new one."""
        batches = self._batches
        opened = await retrying(partial(batches.count, BatchStatus.OPEN, limit=LIMIT))
        sealed = await retrying(partial(batches.count, BatchStatus.SEALED, limit=LIMIT))
        last_led = await retrying(partial(batches.last_led, ROLE_PREFIX))
        return BatchStats(
            open=opened.number,
            oldest_open_at=opened.oldest_at,
            sealed=sealed.number,
            oldest_sealed_at=sealed.oldest_at,
            stuck=tuple(await self._stuck(last_led)) if sealed.number else (),
            last_led=last_led,
        )

    async def _stuck(self, last_led: datetime | None) -> list[StuckBatch]:
        oldest = await retrying(partial(self._batches.sealed, after=None, limit=LOOKED_AT))
        idle, now = await self._idle(oldest), self._clock.now()
        is_led = last_led is not None and last_led > now - _LATELY
        self._idle_since = {each.batch.id: self._idle_since.get(each.batch.id, now) for each in idle}
        found: list[StuckBatch] = []
        for waiting in idle:
            batch = waiting.batch
            reason = await self._reason(batch)
            if reason is None and not is_led and now - self._idle_since[batch.id] >= self._patience:
                reason = "its members are settled, and no process completes batches"
            if reason is not None:
                found.append(StuckBatch(id=batch.id, created_at=batch.created_at, reason=reason))
        return found

    async def _idle(self, batches: Sequence[SealedBatch]) -> list[Waiting]:
        """Those that no member holds open."""
        self._seen.forget_all_but([batch.id for batch in batches])
        listed = [self._seen.keep(batch) for batch in batches]
        witnesses = self._seen.tasks
        pending = await retrying(partial(self._batches.pending, witnesses))
        self._seen.settled(set(witnesses) - set(pending))
        return [waiting for waiting in listed if waiting.witness is None and not await self._is_held(waiting)]

    async def _is_held(self, waiting: Waiting) -> bool:
        """Look for a pending member; that there is none is believed for half a minute."""
        if time.monotonic() < waiting.not_before:
            return False
        reads, page = RepeatedReads(self._batches), SCAN_PAGE
        while page <= _WIDE:
            scan = await reads.scan(waiting.batch.id, below=waiting.cursor, limit=page)
            if scan.pending is not None:
                self._seen.set(waiting, scan.pending)
                return True
            if scan.lowest is None:
                return self._is_idle(waiting)
            waiting.cursor, page = scan.lowest, page * 2
        highest = await reads.highest_pending(waiting.batch.id)
        if highest is None:
            return self._is_idle(waiting)
        self._seen.set(waiting, highest)
        return True

    def _is_idle(self, waiting: Waiting) -> bool:
        waiting.cursor = None  # the next look is for a member that an operator has retried
        waiting.not_before = time.monotonic() + _BELIEVED_SECONDS
        return False

    async def _reason(self, batch: SealedBatch) -> str | None:
        if words := unknown_words(self._callbacks.unknown(batch)):
            return words
        if complaint := self._reconciler.complaints.get(batch.id):
            return complaint
        row = await RepeatedReads(self._batches).get(batch.id)
        if row is None or row.status != BatchStatus.SEALED:
            return None
        try:
            self._callbacks.rows_for(row, self._clock.now())
        except InvalidTask as error:
            return f"{type(error).__name__}: {error}"
        return None

    @property
    def _batches(self) -> BatchStore:
        return self._store().batches
