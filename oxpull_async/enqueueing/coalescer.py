"""Joins concurrent calls into shared statements, without a timer and without a queue's delay.

The first caller runs at once. While its statement is under way, further calls
gather, and the next statement carries all of them; so a lone caller pays
nothing and a crowd pays one round trip together. When many have gathered, a
second statement sets out beside the first, so that the database works while
this process prepares. Each caller is answered only when its row is durable.

A shared statement may not wait long for a competitor, since everybody waits
with it: whoever shared in one that failed is told so, and goes alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from oxpull_async.exceptions import ConnectionLost

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MAX_ROWS = 200
MANY_ROWS = 16
"""So many gathered calls are worth a second statement beside the first."""
MAX_BYTES = 1_000_000


@dataclass(slots=True)
class _Call(Generic[Item, Answer]):
    item: Item
    future: asyncio.Future[Answer]


class Coalescer(Generic[Item, Answer]):
    """One kind of shared statement. Belongs to the event loop in which it's first used."""

    def __init__(
        self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], size_of: Callable[[Item], int]
    ) -> None:
        self._run = run
        self._size_of = size_of
        self._under_way = 0
        self._gathered: deque[_Call[Item, Answer]] = deque()
        self._flushers: set[asyncio.Task[None]] = set()
        self._rest: asyncio.Future[None] | None = None

    async def submit(self, item: Item) -> Answer:
        """The item's answer from a statement of its own or a shared one.

        Raises whatever that statement raised; the caller then runs the item
        alone. A cancel before the statement begins withdraws the item.
        """
        if self._under_way:
            return await self._gather(item)
        self._under_way += 1
        try:
            (answer,) = await self._run([item])
            return answer
        finally:
            self._next()

    async def drain(self) -> None:
        """Wait until every call made so far has its answer."""
        while self._under_way:
            if self._rest is None:
                self._rest = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._rest])

    async def _gather(self, item: Item) -> Answer:
        call: _Call[Item, Answer] = _Call(item, asyncio.get_running_loop().create_future())
        self._gathered.append(call)
        if self._under_way == 1 and len(self._gathered) >= MANY_ROWS:
            self._under_way += 1
            self._next()
        return await call.future

    def _next(self) -> None:
        """Begin the next statement in a task of its own, so that no caller's cancel can end it."""
        batch = self._take()
        if batch:
            flusher = asyncio.get_running_loop().create_task(self._flush(batch))
            self._flushers.add(flusher)
            flusher.add_done_callback(partial(self._ended, batch))
            return
        self._under_way -= 1
        if not self._under_way and self._rest is not None:
            rest, self._rest = self._rest, None
            rest.set_result(None)

    def _take(self) -> list[_Call[Item, Answer]]:
        batch: list[_Call[Item, Answer]] = []
        size = 0
        while self._gathered and len(batch) < MAX_ROWS and size < MAX_BYTES:
            call = self._gathered.popleft()
            if not call.future.done():  # done: its caller was cancelled meanwhile
                batch.append(call)
                size += self._size_of(call.item)
        return batch

    def _ended(self, batch: list[_Call[Item, Answer]], flusher: asyncio.Task[None]) -> None:
        """Whoever cancels all tasks of the loop may meet one that hasn't begun: nobody would ever come after it."""
        self._flushers.discard(flusher)
        if batch:
            _fail(batch, asyncio.CancelledError())
            self._next()

    async def _flush(self, batch: list[_Call[Item, Answer]]) -> None:
        calls = batch.copy()
        batch.clear()  # begun
        try:
            answers = await self._run([call.item for call in calls])
        except BaseException as error:
            _fail(calls, error)
            if not isinstance(error, Exception):
                raise
        else:
            for call, answer in zip(calls, answers, strict=True):
                if not call.future.done():
                    call.future.set_result(answer)
            # Those just answered run first: what they enqueue next shares the next statement.
            await asyncio.sleep(0)
        finally:
            self._next()


def _fail(batch: list[_Call[Item, Answer]], error: BaseException) -> None:
    """Those who share a statement weren't cancelled with it: as after a lost connection, each can go alone."""
    for call in batch:
        if call.future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            call.future.set_exception(ConnectionLost("the statement that this call shared was cancelled"))
        elif isinstance(error, Exception):
            call.future.set_exception(error)
        else:
            call.future.cancel()
