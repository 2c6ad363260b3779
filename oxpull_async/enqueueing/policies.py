"""``Placing`` in transactions of our own: what can share a statement with others does, the rest has one to itself."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.unique_options import Unique
from oxpull_async.core.uniqueness import MAX_PASSES, Deed, decide_deed, is_pending
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.enqueueing.patience import Patience
from oxpull_async.enqueueing.placing import Placing, duplicate_error, moved_to
from oxpull_async.enqueueing.requests import Request
from oxpull_async.enqueueing.unique import raise_race, rows_written_before
from oxpull_async.exceptions import (
    DeadlockDetected,
    LockNotAvailable,
    SerializationFailure,
    StoreError,
    TransactionRolledBack,
    UniqueEnqueueRace,
    UniqueViolation,
)
from oxpull_async.ports import Held, Inserted, Store, TaskRow
from oxpull_async.results import EnqueueResult, ResultSource, duplicate_result


@dataclass(frozen=True, slots=True)
class PlacingHost:
    """What this needs of the Oxpull: how results are made of new rows and of others, and who is told."""

    source: ResultSource
    clock: Clock
    created: Callable[[Sequence[Request]], Awaitable[Sequence[EnqueueResult]]]
    tell: Callable[[], None]


class Policies:
    """Enqueues by each ``Unique`` that isn't plain.

    Up to ``patient`` of them have a transaction at once where the shortest wait for a lock is a long one.
    """

    def __init__(self, store: Store, desk: Desk, *, patient: int) -> None:
        self._store = store
        self._desk = desk
        self._patience = Patience(store, patient)

    async def enqueue(
        self, requests: Sequence[Request], unique: Unique, host: PlacingHost, wait_seconds: float
    ) -> list[EnqueueResult]:
        """One result for each request, in one transaction. Raises: DuplicateTask, UniqueEnqueueRace."""
        now = host.clock.now()
        rows = await self._place(requests, unique, host.source, now=now, wait_seconds=wait_seconds)
        host.tell()
        new = iter(await host.created([r for r, row in zip(requests, rows, strict=True) if row is None]))
        return [next(new) if row is None else duplicate_result(row, host.source) for row in rows]

    async def _place(
        self, requests: Sequence[Request], unique: Unique, source: ResultSource, *, now: datetime, wait_seconds: float
    ) -> list[TaskRow | None]:
        """For each request the holder's row, or None where its own is new: all in one transaction, or nothing.

        Raises: DuplicateTask, UniqueEnqueueRace.
        """
        if not requests:
            return []
        call = _OwnCall(self._store, self._desk, unique, source, now, wait_seconds)
        if len(requests) == 1 and unique.terms is None and unique.on_duplicate != "rerun":
            return await call.shared(requests[0])

        async def decide(wait_seconds: float, lock_seconds: float) -> list[TaskRow | None]:
            call.limit(wait_seconds, lock_seconds)
            return await call.alone(requests)

        path = requests[0].task.task_path
        if self._store.capabilities.fine_lock_timeout:
            placed = await self._desk.patiently(path, wait_seconds, decide)
        else:
            async with self._patience.turn(path, wait_seconds=wait_seconds) as left:
                placed = await decide(left, left)
        for key in call.reruns:
            await self._start_if_over(key)
        return placed

    async def _start_if_over(self, key: str) -> None:
        """The holder may have ended before its rerun was committed, unseen by whoever settled it.

        What is committed is never taken back by an error here: a sweep comes to it too.
        """
        keys = self._store.keys
        with suppress(StoreError):
            rerun = await retrying(lambda: keys.read_rerun(key))
            if rerun is None:
                return
            holder_id = rerun.holder_id
            holder = await retrying(lambda: self._store.get_task(holder_id))
            if holder is None or not is_pending(holder.status):
                await retrying(lambda: keys.start_rerun(key))


class _OwnCall:
    def __init__(
        self,
        store: Store,
        desk: Desk,
        unique: Unique,
        source: ResultSource,
        now: datetime,
        wait_seconds: float,
    ) -> None:
        self._store = store
        self._desk = desk
        self._unique = unique
        self._source = source
        self._now = now
        self.limit(wait_seconds, math.inf)
        self.reruns: list[str] = []

    def limit(self, wait_seconds: float, lock_seconds: float) -> None:
        """From now on it may last so long, and wait so long for one lock."""
        self._deadline, self._lock_seconds = time.monotonic() + wait_seconds, lock_seconds

    async def shared(self, request: Request) -> list[TaskRow | None]:
        """Insert as all others do; only a holder that is to be changed costs a further transaction."""
        for _ in range(MAX_PASSES):
            answer = await self._desk.insert_unique(request.unique, wait_seconds=self._left())
            if isinstance(answer, Inserted):
                return [None]
            placed = await self._repeat(request, answer)
            if placed is not None:
                return placed
        raise UniqueEnqueueRace(
            f"unique enqueue of {request.task.task_path}: its holder was changing each time it was to be changed. "
            "Nothing was written; enqueue again.",
            reason="undecided",
            retry="call",
            attempts=MAX_PASSES,
        )

    async def _repeat(self, request: Request, held: Held) -> list[TaskRow | None] | None:
        holder = held.row
        assert holder is not None
        deed = decide_deed(self._unique.on_duplicate, holder.status)
        if deed is Deed.RETURN:
            return [holder]
        if deed is Deed.RAISE:
            raise duplicate_error(holder, self._source)
        try:
            changed = await retrying(lambda: self._change(deed, request, holder), deadline=self._deadline)
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(request.task.task_path, error, 1)
        return None if changed is None else [changed]

    async def _change(self, deed: Deed, request: Request, holder: TaskRow) -> TaskRow | None:
        keys, task = self._store.keys, request.task
        if deed is Deed.MOVE:
            run_after = moved_to(request, holder, self._unique)
            return await keys.move(holder, run_after, wait_seconds=self._left())
        return await keys.replace(holder, request.unique.key, task.args, task.kwargs, wait_seconds=self._left())

    async def alone(self, requests: Sequence[Request]) -> list[TaskRow | None]:
        """A transaction for this call alone, begun anew after a deadlock."""
        try:
            return await self._decide(requests)
        except UniqueViolation:
            written = await rows_written_before(self._store, [request.task for request in requests])
            if not written:
                raise
        winners = {request.unique.key: written[request.task.id] for request in requests if request.task.id in written}
        rest = [request for request in requests if request.unique.key not in winners]
        rows = iter(await self._decide(rest) if rest else [])
        return [
            (None if request.task.id in written else winner)
            if (winner := winners.get(request.unique.key)) is not None
            else next(rows)
            for request in requests
        ]

    async def _decide(self, requests: Sequence[Request]) -> list[TaskRow | None]:
        try:
            return await retrying(lambda: self._transact(requests), deadline=self._deadline)
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(requests[0].task.task_path, error, 1)
        except UniqueEnqueueRace as race:
            _raise_own(race)

    async def _transact(self, requests: Sequence[Request]) -> list[TaskRow | None]:
        try:
            async with self._store.transaction() as joined:
                placing = Placing(
                    self._store, joined, self._unique, self._source, now=self._now, wait_seconds=self._left()
                )
                async with joined.call(several=len(requests) > 1):
                    rows = await placing.place(requests)
        except TransactionRolledBack as error:
            raise DeadlockDetected(str(error)) from error
        except UniqueEnqueueRace as race:
            # The transaction is ours, so it can be begun anew.
            if isinstance(race.__cause__, DeadlockDetected | SerializationFailure):
                raise race.__cause__ from race
            raise
        self.reruns = placing.reruns
        return rows

    def _left(self) -> float:
        return min(self._lock_seconds, max(self._deadline - time.monotonic(), 0.001))


def _raise_own(race: UniqueEnqueueRace) -> NoReturn:
    """The same error: there's no transaction of the caller's to speak of."""
    raise UniqueEnqueueRace(
        str(race).replace(" in the caller's transaction", "").replace(", and the transaction is usable", ""),
        reason=race.reason,
        retry="call",
        attempts=race.attempts,
        holder_id=race.holder_id,
        holder_status=race.holder_status,
    ) from race.__cause__
