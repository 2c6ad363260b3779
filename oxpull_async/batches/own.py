"""Members added and batches sealed in transactions of our own, repeated where that is safe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID
from weakref import WeakValueDictionary

from oxpull_async._contention import retrying
from oxpull_async.core.uniqueness import MAX_PASSES
from oxpull_async.enqueueing.coalescer import Coalescer
from oxpull_async.enqueueing.unique import raise_race
from oxpull_async.exceptions import (
    DeadlockDetected,
    LockNotAvailable,
    PoolTimeout,
    SerializationFailure,
    StoreError,
    UniqueEnqueueRace,
)
from oxpull_async.ports import NewTask, Store, Unseen
from oxpull_async.ports_batches import Added, Addition, BatchClosed, SealedNow


async def add(
    store: Store, addition: Addition, unheard: list[Added], *, wait_seconds: float, lock_seconds: float = math.inf
) -> Added | BatchClosed:
    """Add members, again after a deadlock or the like. ``unheard``: what tries would have answered whose replies were
    lost, for this call and the next ones of the same addition.

    Raises: UniqueEnqueueRace for unique tasks, StoreError.
    """
    deadline = time.monotonic() + wait_seconds

    async def attempt(seconds: float) -> Added | BatchClosed:
        return await store.batches.add(addition, wait_seconds=seconds, passes=MAX_PASSES, unheard=unheard)

    if not addition.uniques:
        return await retrying(partial(attempt, wait_seconds), deadline=deadline)
    path = addition.uniques[0].task.task_path
    for number in range(1, MAX_PASSES + 1):
        seconds = min(lock_seconds, max(deadline - time.monotonic(), 0.001))
        try:
            answer = await retrying(partial(attempt, seconds), deadline=deadline)
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(path, error, number)
        if isinstance(answer, BatchClosed) or not any(isinstance(found, Unseen) for found in answer.answers):
            return answer
    raise UniqueEnqueueRace(
        f"adding {path} to batch {addition.batch_id} was undecided after {MAX_PASSES} attempts: a key changed hands "
        "each time it was looked at. Nothing was written; add it again.",
        reason="undecided",
        retry="call",
        attempts=MAX_PASSES,
    )


class Crowds:
    """The crowd of each batch, for as long as there is one."""

    def __init__(self, store: Callable[[], Store], wait_seconds: float) -> None:
        self._store = store
        self._wait_seconds = wait_seconds
        self._crowds: WeakValueDictionary[UUID, Crowd] = WeakValueDictionary()

    def of(self, batch_id: UUID) -> Crowd:
        """Those who add to this batch."""
        crowd = self._crowds.get(batch_id)
        if crowd is None:
            crowd = self._crowds[batch_id] = Crowd(self._store, batch_id, self._wait_seconds)
        return crowd

    async def drain(self) -> None:
        """Wait for the shared statements that are under way."""
        for crowd in list(self._crowds.values()):
            await crowd.drain()


class Crowd:
    """Plain tasks that many coroutines add to one batch at once: they share statements, for the batch's row would
    make them queue at the database anyway.
    """

    def __init__(self, store: Callable[[], Store], batch_id: UUID, wait_seconds: float) -> None:
        self._store = store
        self._batch_id = batch_id
        self._wait_seconds = wait_seconds
        self._calls: Coalescer[Addition, Added | BatchClosed] = Coalescer(self._run, _size)

    async def add(self, task: NewTask) -> Added | BatchClosed:
        """Raises: StoreError."""
        alone = Addition(self._batch_id, [task], [], task.enqueued_at)
        try:
            return await self._calls.submit(alone)
        except (PoolTimeout, LockNotAvailable):
            raise
        except StoreError:
            return await add(self._store(), alone, [Added()], wait_seconds=self._wait_seconds)

    async def drain(self) -> None:
        """Wait for the shared statement that is under way."""
        await self._calls.drain()

    async def _run(self, additions: Sequence[Addition]) -> list[Added | BatchClosed]:
        if len(additions) == 1:
            together = additions[0]
        else:
            tasks = [task for addition in additions for task in addition.tasks]
            together = Addition(self._batch_id, tasks, [], additions[0].added_at)
        answer = await self._store().batches.add(together, wait_seconds=self._wait_seconds, passes=1)
        return [answer] * len(additions)


async def seal(store: Store, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
    """Seal, again after a deadlock or the like."""
    tried = False

    async def attempt() -> SealedNow | BatchClosed:
        nonlocal tried
        again, tried = tried, True
        answer = await store.batches.seal(batch_id, now=now)
        if again and isinstance(answer, BatchClosed):
            row = await store.batches.get(batch_id)
            if row is not None and row.sealed_at == now:
                return SealedNow(row.total_count)  # by an earlier try, whose answer was lost
        return answer

    return await retrying(attempt)


def _size(addition: Addition) -> int:
    return sum(len(task.args) + len(task.kwargs) for task in addition.tasks)
