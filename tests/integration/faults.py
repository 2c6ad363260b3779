"""Lets something happen to an operation at its nth statement: connections die, an answer is lost, the process ends."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

from oxpull_async import Oxpull
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.exceptions import ConnectionLost, StoreError
from tests.scale import rounds

Moment = Literal["before", "after", "unheard"]
"""Before the nth statement is sent, after its answer has come, or instead of its answer."""


def sides() -> list[Moment]:
    """On which side of a statement something dies: on both, or in a small run on one of them, chosen at random."""
    both: list[Moment] = ["before", "after"]
    return random.sample(both, rounds(small=1, full=2))


class Fault:
    """Counts the statements that an Oxpull runs, and does its deed once, at the nth."""

    def __init__(self, at: int, moment: Moment, deed: Callable[[], None] = lambda: None) -> None:
        self.at = at
        self.moment = moment
        self.struck = False
        self._deed = deed
        self._seen = 0

    def install(self, ox: Oxpull) -> None:
        """Every operation of this Oxpull goes through the fault from now on."""
        store: Any = ox.store
        store._pool = FaultyPool(store._pool, self)

    def watch(self, procedure: Procedure[Any]) -> Procedure[Any]:
        """The same procedure, with the fault in it."""
        resume: Callable[[], Any] = partial(next, procedure)
        try:
            while True:
                try:
                    step = resume()
                except StopIteration as stop:
                    return stop.value
                mine = self._count()
                if mine and self.moment == "before":
                    self._strike()
                try:
                    result = yield step
                except StoreError as error:
                    resume = partial(procedure.throw, error)
                else:
                    resume = partial(procedure.send, result)
                if mine and self.moment != "before":
                    self._strike()
                    if self.moment == "unheard":
                        raise ConnectionLost("the answer was lost on the way")
        finally:
            procedure.close()

    def _count(self) -> bool:
        self._seen += 1
        return self._seen == self.at

    def _strike(self) -> None:
        self.struck = True
        self._deed()


class FaultyPool:
    """A pool whose procedures go through a fault."""

    def __init__(self, pool: Any, fault: Fault) -> None:
        self._pool = pool
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def read(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.read(self._fault.watch(procedure), **bounds)

    async def write(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.write(self._fault.watch(procedure), **bounds)

    async def transact(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.transact(self._fault.watch(procedure), **bounds)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        async with self._pool.begin() as session:
            yield FaultySession(session, self._fault)


class FaultySession:
    """A transaction of the library's own whose procedures go through a fault."""

    def __init__(self, session: Any, fault: Fault) -> None:
        self._session = session
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def run(self, procedure: Procedure[Any]) -> Any:
        return await self._session.run(self._fault.watch(procedure))
