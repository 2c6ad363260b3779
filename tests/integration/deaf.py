"""A client that doesn't hear that its work was committed, while others go on with what it wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from oxpull_async import Oxpull
from oxpull_async.exceptions import ConnectionLost


class Deaf:
    """A pool that once does not hear that its work was committed: when ``meanwhile`` returns something."""

    def __init__(self, meanwhile: Callable[[], Awaitable[int]]) -> None:
        self._pool: Any = None
        self._meanwhile = meanwhile
        self.is_deaf = True

    def install(self, ox: Oxpull) -> Deaf:
        """Every operation of this Oxpull goes through it from now on."""
        store: Any = ox.store
        self._pool, store._pool = store._pool, self
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def write(self, procedure: Any, **options: Any) -> Any:
        return await self._heard(await self._pool.write(procedure, **options))

    async def transact(self, procedure: Any, **options: Any) -> Any:
        return await self._heard(await self._pool.transact(procedure, **options))

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        async with self._pool.begin() as session:
            yield session
        await self._heard(None)

    async def _heard(self, answer: Any) -> Any:
        if self.is_deaf and await self._meanwhile():
            self.is_deaf = False
            raise ConnectionLost("the reply was lost on the way")
        return answer
