"""A COMMIT whose reply is lost, and whose rows have run by the time that the call is repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oxpull_async import EnqueueResult, Oxpull, Unique
from oxpull_async.exceptions import ConnectionLost

UNIQUES = {
    "plain": Unique(),
    "by": Unique(by=("name",)),
    "ready": Unique(hold="ready"),
    "window": Unique(window=60),
    "rerun": Unique(on_duplicate="rerun"),
}


class Deaf:
    """A pool that once does not hear that its work was committed."""

    def __init__(self, pool: Any, meanwhile: Callable[[], Awaitable[int]]) -> None:
        self._pool = pool
        self._meanwhile = meanwhile
        self.is_deaf = True

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


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("kind", UNIQUES)
async def test_rows_that_ran_before_the_call_was_repeated_are_its_own(migrated_url: str, kind: str, many: bool):
    ran: list[str] = []

    async with Oxpull(migrated_url) as ox, Oxpull(migrated_url) as worker:

        async def send(name: str) -> None:
            ran.append(name)

        worker.task(send)
        task = ox.task(unique=UNIQUES[kind])(send)
        store: Any = ox.store
        store._pool = deaf = Deaf(store._pool, worker.run_until_idle)
        if many:
            results = await ox.enqueue_many(task, [("a",), ("b",), ("a",)])
        else:
            results = [await task.enqueue("a")]
        await worker.run_until_idle()

        assert not deaf.is_deaf
        assert [result.created for result in results] == ([True, True, False] if many else [True])
        assert sorted(ran) == (["a", "b"] if many else ["a"])
        assert [(await refreshed(result)).status for result in results] == ["SUCCESSFUL"] * len(results)
        if many:
            assert results[0].id == results[2].id


async def refreshed(result: EnqueueResult) -> Any:
    return await result.refresh()
