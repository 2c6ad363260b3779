"""Completes batches: as soon as a hint says that a witness has settled, and without hints in regular sweeps."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.batches import SCAN_PAGE, Ending
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.exceptions import OxpullError, TaskTimeout
from oxpull_async.ports import NewTask, Store
from oxpull_async.ports_batches import (
    BatchRow,
    BatchStore,
    Completed,
    Completion,
    CompletionAnswer,
    NotSealed,
    SealedBatch,
    StillPending,
)
from oxpull_async.results import EnqueueResult, ResultSource, created_result
from oxpull_async.runtime.batch_reads import RepeatedReads
from oxpull_async.runtime.callbacks import Callbacks
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.runtime.witnesses import Waiting, Witnesses
from oxpull_async.telemetry import log

ROLE_PREFIX: Final = "batches:"
_LISTED: Final = 500
_PROBED: Final = 1000
_LONGEST_PAGE: Final = 2 * SCAN_PAGE
_PASS_SECONDS: Final = 1.0
_REOPENED_SECONDS: Final = 2.0
_FIRST_BACKOFF_SECONDS: Final = 0.5
_LONGEST_BACKOFF_SECONDS: Final = 60.0

Announce = Callable[[Callable[[], Iterable[EnqueueResult]]], Awaitable[None]]


class Reconciler:
    """One per ``Oxpull``. Whoever asks for a pass, it uses the witnesses of the passes before.

    Any number of these, and those of Django processes, may work at once: a
    compare-and-set on the batch's status decides who completes it.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        callbacks: Callbacks,
        clock: Clock,
        reader: ResultSource,
        announce: Announce,
        completions: SettleHints,
    ) -> None:
        self._store = store
        self._callbacks = callbacks
        self._clock = clock
        self._reader = reader
        self._announce = announce
        self._completions = completions
        self._witnesses = Witnesses()
        self._heard: set[UUID] = set()
        self._sealed: set[UUID] = set()
        self._turn = asyncio.Lock()
        self._turn_loop: asyncio.AbstractEventLoop | None = None
        self.last_pass: datetime | None = None
        """When this process has last ended a pass over all sealed batches."""

    async def reconcile(self) -> int:
        """One pass over all sealed batches, to its end; returns how many were completed."""
        async with self._pass():
            await self._look()
            return await self._advance(until=None)

    async def sweep(self) -> bool:
        """The same, but it ends after a second or so; False: there is more to do."""
        async with self._pass():
            await self._look()
            await self._advance(until=time.monotonic() + _PASS_SECONDS)
            return not self._due()

    async def act_on_hints(self) -> bool:
        """Go on with the batches whose witness has settled, and those just sealed; False: there is more to do."""
        async with self._pass():
            sealed, self._sealed = self._sealed, set()
            for batch_id in sealed:
                batch = await retrying(partial(self._batches.get_sealed, batch_id))
                if batch is not None and not self._callbacks.unknown(batch):
                    self._witnesses.keep(batch)
            await self._advance(until=time.monotonic() + _PASS_SECONDS)
            return not self._due() and not self._sealed

    def hear_settled(self, task_ids: Collection[UUID]) -> bool:
        """These rows were settled or changed; True if a batch has been waiting for one of them."""
        if self._turn.locked():
            self._heard.update(task_ids)  # the pass that is under way may have seen them pending
        return self._witnesses.settled(task_ids)

    def hear_sealed(self, batch_id: UUID) -> None:
        """This batch was sealed."""
        self._sealed.add(batch_id)

    @property
    def next_due(self) -> float:
        """Monotonic time at which a batch that was backed off is to be tried again."""
        return min((waiting.not_before for waiting in self._witnesses.without), default=float("inf"))

    @property
    def complaints(self) -> Mapping[UUID, str]:
        """What keeps batches from completing here, although no member holds them open."""
        return {waiting.batch.id: waiting.complaint for waiting in self._witnesses.all if waiting.complaint}

    @property
    def role(self) -> str:
        """What is to be led here: processes that know the same tasks have one leader among them."""
        return ROLE_PREFIX + _digest(self._callbacks.paths)

    async def last_led(self) -> datetime | None:
        """Until when a process has last led."""
        return await self._batches.last_led(ROLE_PREFIX)

    async def stuck(self) -> list[tuple[SealedBatch, str]]:
        """Batches that no member holds open, and why they aren't completed here. Looks, and completes nothing."""
        found: list[tuple[SealedBatch, str]] = []
        async with self._pass():
            foreign = await self._look()
            strangers = [Waiting(batch) for batch in foreign]
            for waiting in [*strangers, *self._witnesses.without]:
                if not await self._find_witness(waiting, until=None, surely=True):
                    reason = unknown_words(self._callbacks.unknown(waiting.batch)) or waiting.complaint
                    found += [(waiting.batch, reason)] if reason else []
        return found

    # A pass

    async def _look(self) -> list[SealedBatch]:
        """Learn which batches are sealed, and whose witness has settled; returns those with callbacks unknown here."""
        self._sealed.clear()
        mine: set[UUID] = set()
        foreign: list[SealedBatch] = []
        after: SealedBatch | None = None
        while True:
            page = await retrying(partial(self._batches.sealed, after=after, limit=_LISTED))
            for batch in page:
                if self._callbacks.unknown(batch):
                    foreign.append(batch)
                else:
                    mine.add(batch.id)
                    self._witnesses.keep(batch)
            if len(page) < _LISTED:
                break
            after = page[-1]
        self._witnesses.forget_all_but(mine)
        await self._probe()
        self.last_pass = self._clock.now()
        return foreign

    async def _probe(self) -> None:
        tasks = self._witnesses.tasks
        for start in range(0, len(tasks), _PROBED):
            chunk = tasks[start : start + _PROBED]
            pending = await retrying(partial(self._batches.pending, chunk))
            self._witnesses.settled(set(chunk) - set(pending))

    async def _advance(self, *, until: float | None) -> int:
        """Find witnesses for the batches without one, and complete those that have none. One can't stop the others."""
        completed = 0
        due = self._due(everything=until is None)
        random.shuffle(due)
        for waiting in due:
            if until is not None and time.monotonic() >= until:
                break
            try:
                completed += await self._advance_one(waiting, until)
            except Exception as error:  # this batch's own; whatever it is, the next one may do
                if isinstance(error, TaskTimeout) or isinstance(error.__cause__, TaskTimeout):
                    raise  # the time limit of the task that makes this pass
                self._note_failure(waiting, error)
        return completed

    def _due(self, *, everything: bool = False) -> list[Waiting]:
        now = time.monotonic()
        return [waiting for waiting in self._witnesses.without if everything or waiting.not_before <= now]

    async def _advance_one(self, waiting: Waiting, until: float | None) -> bool:
        if not waiting.batch.is_counted:
            await retrying(partial(self._batches.count_members, waiting.batch.id))
        if await self._find_witness(waiting, until, surely=waiting.was_tried):
            return False
        return await self._complete(waiting)

    async def _find_witness(self, waiting: Waiting, until: float | None, *, surely: bool) -> bool:
        """Page down to the next pending member; False if there is none. True also where time ran out on the way.

        Pages grow, and where even long ones have shown none, one look at all members is cheaper than going on. Unless
        ``surely``, that look is left to the completion, which counts them anyway: most often there is none by then.
        """
        page = SCAN_PAGE
        while True:
            scan = await self._reads.scan(waiting.batch.id, below=waiting.cursor, limit=page)
            if scan.pending is not None and scan.pending not in self._heard:
                self._witnesses.set(waiting, scan.pending)
                return True
            if scan.lowest is None:
                return False
            waiting.cursor = scan.pending or scan.lowest
            page *= 2
            if page > _LONGEST_PAGE:
                return surely and await self._look_at_all(waiting)
            if until is not None and time.monotonic() >= until:
                return True

    async def _look_at_all(self, waiting: Waiting) -> bool:
        highest = await self._reads.highest_pending(waiting.batch.id)
        if highest is not None:
            self._set_unheard(waiting, highest)
        return highest is not None

    def _set_unheard(self, waiting: Waiting, task_id: UUID) -> None:
        """A look that took long has found it pending; what was heard meanwhile is true."""
        self._witnesses.set(waiting, task_id)
        if task_id in self._heard:
            self._witnesses.settled([task_id])

    async def _complete(self, waiting: Waiting) -> bool:
        row = await self._reads.get(waiting.batch.id)
        if row is None or row.status != BatchStatus.SEALED:
            self._witnesses.forget(waiting.batch.id)
            return False
        now = self._clock.now()
        callbacks = self._callbacks.rows_for(row, now)
        completion = Completion(row.id, callbacks.on_complete, callbacks.on_success, now)
        answer = await _completed(self._batches, completion)
        match answer:
            case Completed(ending):
                self._witnesses.forget(row.id)
                await self._tell(row, completion, ending)
                return True
            case StillPending(task_id):
                self._still_pending(waiting, task_id)
            case NotSealed():
                self._witnesses.forget(row.id)
        return False

    def _still_pending(self, waiting: Waiting, task_id: UUID) -> None:
        """The first try was a guess. At a later one a member is pending that had been settled: a retry, most likely."""
        if waiting.was_tried:
            waiting.reopened += 1
            waiting.not_before = time.monotonic() + min(_backoff(waiting.reopened), _REOPENED_SECONDS)
        waiting.was_tried = True
        self._set_unheard(waiting, task_id)

    async def _tell(self, row: BatchRow, completion: Completion, ending: Ending) -> None:
        log(
            logging.INFO,
            "batch_completed",
            f"batch {row.name!r} ({row.id}) is COMPLETE: {ending.failed} of {ending.total} failed, "
            f"{ending.unattributed} unattributed",
            batch_id=str(row.id),
            failed_count=ending.failed,
            unattributed_count=ending.unattributed,
        )
        self._completions.settled([row.id])
        callbacks = [completion.on_complete, completion.on_success if ending.is_success else None]
        enqueued = [callback for callback in callbacks if callback is not None]
        if enqueued:
            await self._announce(lambda: [_result(callback, self._reader) for callback in enqueued])

    def _note_failure(self, waiting: Waiting, error: Exception) -> None:
        """Told once for each kind of trouble; after that it's visible in ``stuck``."""
        complaint = f"{type(error).__name__}: {error}"
        waiting.failures += 1
        waiting.not_before = time.monotonic() + _backoff(waiting.failures)
        if waiting.complaint != complaint:
            waiting.complaint = complaint
            log(
                logging.ERROR,
                "batch_reconcile_failed",
                f"batch {waiting.batch.id} can't be completed, and is tried again: {error}",
                error=None if isinstance(error, OxpullError) else error,
                batch_id=str(waiting.batch.id),
            )

    @property
    def _reads(self) -> RepeatedReads:
        return RepeatedReads(self._batches)

    @property
    def _batches(self) -> BatchStore:
        return self._store().batches

    @asynccontextmanager
    async def _pass(self) -> AsyncIterator[None]:
        """One at a time, in the event loop of its time. It begins with nothing heard."""
        loop = asyncio.get_running_loop()
        if self._turn_loop is not loop:
            self._turn, self._turn_loop = asyncio.Lock(), loop
        async with self._turn:
            self._heard.clear()
            yield


async def _completed(batches: BatchStore, completion: Completion) -> CompletionAnswer:
    """Again after a deadlock or the like. A try whose answer was lost may have completed it."""
    tried = False

    async def attempt() -> CompletionAnswer:
        nonlocal tried
        again, tried = tried, True
        answer = await batches.complete(completion)
        if again and isinstance(answer, NotSealed):
            return await _ours(batches, completion) or answer
        return answer

    return await retrying(attempt)


async def _ours(batches: BatchStore, completion: Completion) -> Completed | None:
    row = await batches.get(completion.batch_id)
    if row is None or row.completed_at != completion.completed_at or row.total_count is None:
        return None
    failed = row.failed_count or 0
    if row.success_task_id is not None:  # its members may have changed since
        return Completed(Ending(row.total_count, failed, 0))
    tally = await batches.tally(row.id, width=row.total_count)
    return Completed(Ending(row.total_count, failed, max(row.total_count - tally.succeeded - failed, 0)))


def _result(task: NewTask, reader: ResultSource) -> EnqueueResult:
    return created_result(task, reader)


def _digest(paths: list[str]) -> str:
    return hashlib.sha256("\n".join(paths).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _backoff(failures: int) -> float:
    doubled: float = _FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 10)
    return random.uniform(0.5, 1) * min(doubled, _LONGEST_BACKOFF_SECONDS)


def unknown_words(paths: list[str]) -> str | None:
    """Why a batch with these unknown callbacks isn't completed here."""
    return f"no task here has the path {' or '.join(paths)}" if paths else None
