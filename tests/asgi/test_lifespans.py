"""The lifespan as hosts treat it: entered here and left there, cancelled, and with its loops breaking."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from oxpull_async import Oxpull, Worker
from tests.eventually import eventually
from tests.integration.cancelling import Kind, Moment, cancelled_at
from tests.integration.competitor import Competitor


class Left:
    """What a lifespan should leave as it found it."""

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())

    async def behind_nothing(self) -> None:
        def nothing() -> None:
            assert asyncio.all_tasks() - self._tasks == set()
            # A pool of threads keeps its idle ones; they belong to anyio and to the loop's executor.
            left = {thread.name for thread in set(threading.enumerate()) - self._threads}
            assert {name for name in left if "AnyIO" not in name and not name.startswith("asyncio_")} == set()

        await eventually(nothing)


async def in_a_task_of_its_own(coroutine: Any) -> Any:
    return await asyncio.get_running_loop().create_task(coroutine)


async def test_it_may_be_left_in_another_task_than_it_was_entered_in(migrated_url: str):
    ox, left = Oxpull(migrated_url), Left()

    @ox.task
    async def double(n: int) -> int:
        return 2 * n

    lifespan = ox.running(worker=Worker(ox))
    await in_a_task_of_its_own(lifespan.__aenter__())
    assert await (await double.enqueue(21)).wait(timeout=20) == 42
    await in_a_task_of_its_own(lifespan.__aexit__(None, None, None))

    assert not ox.is_open
    await left.behind_nothing()


async def test_an_error_of_the_host_passes_through(migrated_url: str):
    ox, left = Oxpull(migrated_url), Left()

    with pytest.raises(LookupError):
        async with ox.lifespan():
            raise LookupError
    async with ox.lifespan() as state:
        assert state == {"ox": ox}

    await left.behind_nothing()


@pytest.mark.engines("sqlite", "postgres")
async def test_a_loop_that_breaks_brings_nothing_down(migrated_url: str, monkeypatch: pytest.MonkeyPatch):
    ox, left, broken = Oxpull(migrated_url), Left(), asyncio.Event()

    @ox.task
    async def send() -> None: ...

    async def break_down(*args: Any, **kwargs: Any) -> Any:
        broken.set()
        raise RuntimeError("not a StoreError")

    async with ox.running(worker=Worker(ox)):
        monkeypatch.setattr(ox.store, "claim", break_down)
        result = await send.enqueue()
        await asyncio.wait_for(broken.wait(), 20)
        assert (await result.refresh()).status == "READY"

        monkeypatch.undo()
        await result.wait(timeout=20)

    await left.behind_nothing()


@pytest.mark.engines("sqlite", "postgres")
@pytest.mark.parametrize("kind", ["task", "scope"])
@pytest.mark.parametrize("moment", ["waiting", "answered"])
async def test_it_may_be_cancelled_at_any_await(migrated_url: str, competitor: Competitor, kind: Kind, moment: Moment):
    left, sessions = Left(), competitor.sessions()

    async def live() -> None:
        async with ox.running(worker=Worker(ox, shutdown_timeout=5)):
            await asyncio.sleep(0)

    at = 1
    while True:
        ox = Oxpull(migrated_url)
        outcome = await cancelled_at(live(), at, moment, kind)
        await left.behind_nothing()
        await eventually(lambda: competitor.sessions() == sessions)
        assert not ox.is_open
        if not outcome.struck:
            break
        at += 1
    assert at > 3


async def test_a_second_cancel_while_it_is_being_left_is_waited_out(migrated_url: str):
    ox, left, began = Oxpull(migrated_url), Left(), asyncio.Event()

    async def live() -> None:
        async with ox.running(worker=Worker(ox)):
            began.set()
            await asyncio.Event().wait()

    host = asyncio.get_running_loop().create_task(live())
    await asyncio.wait_for(began.wait(), 20)
    for _ in range(3):
        host.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([host])

    assert host.cancelled()
    assert not ox.is_open
    await left.behind_nothing()
