"""Long waits for keys that competitors hold: few at a time, and one for each key.

Whoever waits holds a connection. Were all callers of a busy key to hold one,
a single open transaction elsewhere would stop everybody else in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import anyio

from oxpull_async.enqueueing.unique import insert_unique, raise_race, row_of
from oxpull_async.exceptions import LockNotAvailable
from oxpull_async.ports import Held, Inserted, NewUnique, Store


class Turns:
    """Lets up to ``most`` callers wait at the database at once."""

    def __init__(self, most: int) -> None:
        self._turns = anyio.Semaphore(most)

    @asynccontextmanager
    async def turn(self, task_path: str, *, wait_seconds: float) -> AsyncIterator[float]:
        """May wait at the database: for so many seconds. Raises: UniqueEnqueueRace if too many wait there already."""
        deadline = time.monotonic() + wait_seconds
        with anyio.move_on_after(wait_seconds) as scope:
            await self._turns.acquire()
        if scope.cancelled_caught:
            _give_up(task_path)
        try:
            yield _left(deadline)
        finally:
            self._turns.release()


class Patience(Turns):
    """Whoever wants a key that is waited for, waits here."""

    def __init__(self, store: Store, most: int) -> None:
        super().__init__(most)
        self._store = store
        self._awaited: dict[str, asyncio.Future[Held | None]] = {}

    def knows(self, key: str) -> bool:
        """Whether somebody here is waiting for this key."""
        return key in self._awaited

    async def insert_unique(self, unique: NewUnique, *, wait_seconds: float) -> Inserted | Held:
        """Decide a key that was found busy. Raises: UniqueEnqueueRace."""
        deadline = time.monotonic() + wait_seconds
        while (awaited := self._awaited.get(unique.key)) is not None:
            await asyncio.wait([awaited], timeout=_left(deadline))
            if not awaited.done():
                _give_up(unique.task.task_path)
            if (holder := awaited.result()) is not None:
                return holder
        return await self._wait(unique, deadline)

    async def _wait(self, unique: NewUnique, deadline: float) -> Inserted | Held:
        """What it comes to is told to those who want the same key; told nothing, one of them waits next."""
        awaited = self._awaited[unique.key] = asyncio.get_running_loop().create_future()
        answer: Inserted | Held | None = None
        try:
            async with self.turn(unique.task.task_path, wait_seconds=_left(deadline)) as left:
                answer = await insert_unique(self._store, unique, wait_seconds=left)
            return answer
        finally:
            del self._awaited[unique.key]
            if isinstance(answer, Inserted):
                answer = Held(unique.task.id, row_of(unique.task))
            awaited.set_result(answer)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _give_up(task_path: str) -> NoReturn:
    raise_race(task_path, LockNotAvailable("others here were still waiting for the database"), 1)
