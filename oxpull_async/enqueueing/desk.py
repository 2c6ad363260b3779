"""The enqueueing side of one Oxpull in transactions of its own: who runs alone, who shares, who is told."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from oxpull_async.enqueueing.coalescer import Coalescer
from oxpull_async.enqueueing.expectations import Expectations
from oxpull_async.enqueueing.patience import Patience, Turns
from oxpull_async.enqueueing.plain import insert_tasks
from oxpull_async.enqueueing.requests import Request
from oxpull_async.enqueueing.unique import insert_shared, insert_unique, insert_uniques_together, row_of, verdict
from oxpull_async.exceptions import LockNotAvailable, PoolTimeout, StoreError, UniqueEnqueueRace
from oxpull_async.ports import Attempt, Held, Inserted, NewTask, NewUnique, Store, TaskRow

T = TypeVar("T")

SHARED_WAIT_SECONDS = 0.03
"""How long a shared unique statement waits for a competitor before its calls go alone."""


class Desk:
    """Writes requests to a store. Plain and unique calls never share a statement."""

    def __init__(self, store: Store, *, patient: int = 1) -> None:
        self._store = store
        self._patience = Patience(store, patient)
        self._apart = Turns(patient)
        self._expectations = Expectations()
        self._plain: Coalescer[NewTask, None] = Coalescer(self._insert_shared_tasks, _size)
        self._unique: Coalescer[NewUnique, Attempt] = Coalescer(self._insert_shared_uniques, _unique_size)

    async def insert(self, task: NewTask) -> None:
        """Write one plain row."""
        try:
            await self._plain.submit(task)
        except PoolTimeout:
            raise
        except StoreError:
            await insert_tasks(self._store, [task], tried_before=True)

    async def insert_unique(self, unique: NewUnique, *, wait_seconds: float) -> Inserted | Held:
        """Write one unique row, or find the pending one. Raises: UniqueEnqueueRace.

        A key that turns out to be busy is waited for apart, so that nobody else waits with it.
        """
        deadline = time.monotonic() + wait_seconds
        if not self._patience.knows(unique.key):
            first, is_busy = await self._share(unique)
            self._expectations.learn(unique, first)
            if (decided := verdict(first, unique)) is not None:
                return decided
            try:
                return await self._try_alone(unique, first, deadline, in_turn=is_busy)
            except UniqueEnqueueRace as race:
                if race.reason != "lock_wait":
                    raise
        return await self._patience.insert_unique(unique, wait_seconds=_left(deadline))

    async def _share(self, unique: NewUnique) -> tuple[Attempt | None, bool]:
        """The answer of a shared statement, if it gave any, and whether a competitor is why it didn't."""
        try:
            return await self._unique.submit(unique), False
        except PoolTimeout:
            raise
        except StoreError as error:
            return None, isinstance(error, LockNotAvailable)

    async def _try_alone(
        self, unique: NewUnique, first: Attempt | None, deadline: float, *, in_turn: bool
    ) -> Inserted | Held:
        """A short try. All who shared with a busy key come at once: each in turn, lest they queue for connections."""
        if in_turn:
            async with self._apart.turn(unique.task.task_path, wait_seconds=_left(deadline)) as left:
                return await insert_unique(self._store, unique, wait_seconds=left, lock_seconds=SHARED_WAIT_SECONDS)
        return await insert_unique(
            self._store, unique, wait_seconds=_left(deadline), first=first, lock_seconds=SHARED_WAIT_SECONDS
        )

    async def insert_many(self, requests: Sequence[Request]) -> None:
        """Write many plain rows in one transaction."""
        if requests:
            await insert_tasks(self._store, [request.task for request in requests])

    async def insert_unique_many(self, requests: Sequence[Request], *, wait_seconds: float) -> list[TaskRow | None]:
        """Write many unique rows in one transaction: None for each new one, the pending row for the others.

        A key's first occurrence is the new one, its repeats find it.
        """
        first: dict[str, Request] = {}
        for request in requests:
            first.setdefault(request.unique.key, request)
        if not first:
            return []
        uniques = [request.unique for request in first.values()]
        found = dict(zip(first, await self._insert_together(uniques, wait_seconds), strict=True))
        return [_row(request, first, found) for request in requests]

    async def _insert_together(self, uniques: Sequence[NewUnique], wait_seconds: float) -> Sequence[Inserted | Held]:
        async def insert(wait_seconds: float, lock_seconds: float) -> Sequence[Inserted | Held]:
            return await insert_uniques_together(
                self._store, uniques, wait_seconds=wait_seconds, lock_seconds=lock_seconds
            )

        return await self.patiently(uniques[0].task.task_path, wait_seconds, insert)

    async def patiently(self, task_path: str, wait_seconds: float, decide: Callable[[float, float], Awaitable[T]]) -> T:
        """Decide at once, or else wait for competitors when it's this call's turn to. Raises: UniqueEnqueueRace.

        ``decide`` takes the seconds it may last, and those it may wait for one lock.
        """
        deadline = time.monotonic() + wait_seconds
        try:
            return await decide(wait_seconds, SHARED_WAIT_SECONDS)
        except UniqueEnqueueRace as race:
            if race.reason != "lock_wait":
                raise
        async with self._patience.turn(task_path, wait_seconds=_left(deadline)) as left:
            return await decide(left, left)

    async def drain(self) -> None:
        """Wait for the shared statements that are under way."""
        await self._plain.drain()
        await self._unique.drain()

    async def _insert_shared_tasks(self, tasks: Sequence[NewTask]) -> list[None]:
        await self._store.insert_tasks(tasks)
        return [None] * len(tasks)

    def _insert_shared_uniques(self, uniques: Sequence[NewUnique]) -> Awaitable[Sequence[Attempt]]:
        probably_free = self._expectations.free(uniques)
        return insert_shared(self._store, uniques, wait_seconds=SHARED_WAIT_SECONDS, probably_free=probably_free)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _row(request: Request, first: dict[str, Request], found: dict[str, Any]) -> TaskRow | None:
    winner = first[request.unique.key]
    match found[request.unique.key]:
        case Held(row=row):
            return row
        case _:
            return None if winner is request else row_of(winner.task)


def _size(task: NewTask) -> int:
    return len(task.args) + len(task.kwargs)


def _unique_size(unique: NewUnique) -> int:
    return _size(unique.task)
