"""Workers elsewhere are told of rows in a caller's transaction by its COMMIT, in the statements that write them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from oxpull_async import Oxpull, Unique, Worker
from oxpull_async.batches.bound import BoundOxpull
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.test_worker_wakeups import listening
from tests.joined.handles import Caller

pytestmark = pytest.mark.engines("postgres")

Enqueue: TypeAlias = Callable[[BoundOxpull, Oxpull], Coroutine[Any, Any, Any]]


def plain(ox: Oxpull) -> AnyTask:
    return ox.reference("proof.plain")


def unique(ox: Oxpull, **options: Any) -> AnyTask:
    return ox.reference("proof.unique", unique=Unique(**options))


async def add_to_a_batch(bound: BoundOxpull, ox: Oxpull) -> None:
    async with bound.batches.create("proof") as batch:
        await batch.add_many(plain(ox), [(1,), (2,)])


WAYS: list[Enqueue] = [
    lambda bound, ox: bound.enqueue(plain(ox), 1),
    lambda bound, ox: bound.enqueue_many(plain(ox), [(1,), (2,)]),
    lambda bound, ox: bound.enqueue(unique(ox), 1),
    lambda bound, ox: bound.enqueue_many(unique(ox), [(2,), (3,)]),
    lambda bound, ox: bound.enqueue(unique(ox, on_duplicate="replace", by=lambda n: n), 4),
    add_to_a_batch,
]


class Ear:
    """Hears what is told in a database."""

    def __init__(self, ox: Oxpull) -> None:
        self._ox = ox
        self._heard: list[str] = []

    def hear(self, word: str) -> None:
        self._heard.append(word)

    async def words(self) -> list[str]:
        """All that was told until now, in the order of the commits."""
        await self._ox.store.notify("mark")
        await eventually(lambda: "mark" in self._heard, within=30)
        heard = [word for word in self._heard if word != "mark"]
        self._heard.clear()
        return heard


async def test_a_commit_tells_once_of_whatever_was_enqueued(ox: Oxpull, caller: Caller):
    ear = Ear(ox)
    async with ox.store.listener(ear.hear, lambda: None):
        for enqueue in WAYS:
            await caller.begin()
            await enqueue(ox.bind(caller.bindable), ox)
            await ox.bind(caller.bindable).enqueue(plain(ox), 9)
            assert await ear.words() == []
            await caller.commit()
            assert await ear.words() == ["ready"]


async def test_nothing_is_told_of_what_is_not_there(ox: Oxpull, caller: Caller, url: str):
    ear = Ear(ox)
    async with ox.store.listener(ear.hear, lambda: None), Oxpull(url, notify=False) as silent:
        await silent.enqueue(unique(ox), 1)
        await caller.begin()
        await ox.bind(caller.bindable).enqueue(plain(ox), 1)
        await caller.rollback()
        await caller.begin()
        assert not (await ox.bind(caller.bindable).enqueue(unique(ox), 1)).created
        await silent.bind(caller.bindable).enqueue(plain(ox), 1)
        await caller.commit()

        assert await ear.words() == []


async def test_an_idle_worker_starts_what_a_caller_has_committed(ox: Oxpull, url: str, caller: Caller):
    @ox.task
    async def task() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=3600)), Oxpull(url) as other:
        await listening(ox)
        for _ in range(2):
            await caller.begin()
            result = await other.bind(caller.bindable).enqueue(other.reference(task.path))
            await caller.commit()
            assert await result.wait(timeout=30) == "done"
