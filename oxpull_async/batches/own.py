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
    UniqueViolation,
)
from oxpull_async.ports import Attempt, Held, Inserted, NewTask, Store, Unseen
from oxpull_async.ports_batches import Added, Addition, BatchClosed, SealedNow


async def add(
    store: Store, addition: Addition, *, wait_seconds: float, lock_seconds: float = math.inf, tried: bool = False
) -> Added | BatchClosed:
    """Add members, again after a deadlock or the like. ``tried``: an earlier try may have been committed.

    Raises: UniqueEnqueueRace for unique tasks, StoreError.
    """
    if not addition.uniques:
        return await _Tries(store, addition, tried).run(wait_seconds, wait_seconds)
    path = addition.uniques[0].task.task_path
    deadline = time.monotonic() + wait_seconds
    tries = _Tries(store, addition, tried)
    for attempt in range(1, MAX_PASSES + 1):
        left = max(deadline - time.monotonic(), 0.001)
        try:
            answer = await tries.run(left, min(lock_seconds, left))
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(path, error, attempt)
        if isinstance(answer, BatchClosed) or not any(isinstance(found, Unseen) for found in answer.answers):
            return answer
    raise UniqueEnqueueRace(
        f"adding {path} to batch {addition.batch_id} was undecided after {MAX_PASSES} attempts: a key changed hands "
        "each time it was looked at. Nothing was written; add it again.",
        reason="undecided",
        retry="call",
        attempts=MAX_PASSES,
    )


class _Tries:
    """One addition, tried until it's known what became of it. A try whose answer was lost may have been committed."""

    def __init__(self, store: Store, addition: Addition, tried: bool) -> None:
        self._store = store
        self._addition = addition
        self._tried = tried

    async def run(self, seconds: float, lock_seconds: float) -> Added | BatchClosed:
        """Raises: StoreError."""
        return await retrying(partial(self._try, lock_seconds), deadline=time.monotonic() + seconds)

    async def _try(self, lock_seconds: float) -> Added | BatchClosed:
        tried, self._tried = self._tried, True
        try:
            answer = await self._store.batches.add(self._addition, wait_seconds=lock_seconds, passes=MAX_PASSES)
        except UniqueViolation:
            written = await self._written() if tried else None
            if written is None:
                raise
            return written
        if not tried:
            return answer
        if isinstance(answer, BatchClosed) or answer.repeated:
            return await self._written() or answer
        return answer

    async def _written(self) -> Added | None:
        """What an earlier try has committed, known by our ids and by the instant that we stamp members with."""
        addition = self._addition
        answers = [await self._answer_of(unique.key, unique.task.id) for unique in addition.uniques]
        holders = [answer.task_id for answer in answers if isinstance(answer, Held) and answer.task_id is not None]
        mine = [task.id for task in addition.tasks]
        new = [u.task.id for u, answer in zip(addition.uniques, answers, strict=True) if isinstance(answer, Inserted)]
        ids = [*mine, *new, *holders]
        found = await self._store.batches.members_among(addition.batch_id, ids)
        if len(holders) + len(new) < len(addition.uniques) or not {*mine, *new} <= found.keys():
            return None
        joined = {task_id for task_id in holders if found.get(task_id) == addition.added_at}
        if not (mine or new or joined):
            return None
        return Added(answers, frozenset(holders) - joined)

    async def _answer_of(self, key: str, task_id: UUID) -> Attempt:
        holder = await self._store.read_holder(key)
        return Inserted() if isinstance(holder, Held) and holder.task_id == task_id else holder


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
            return await add(self._store(), alone, wait_seconds=self._wait_seconds, tried=True)

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
