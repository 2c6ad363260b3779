"""Work done while something is awaited, which must not make a difference to what is awaited."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from oxpull_async._meanwhile import meanwhile


async def test_the_work_is_done_once_what_is_awaited_waits():
    told: list[str] = []
    answered = asyncio.Event()

    async def ask() -> str:
        told.append("asked")
        await answered.wait()
        told.append("answered")
        await asyncio.sleep(0)
        return "answer"

    def work() -> str:
        told.append("worked")
        answered.set()
        return "work"

    assert await meanwhile(ask(), work) == ("answer", "work")
    assert told == ["asked", "worked", "answered"]


async def test_the_work_is_done_also_where_nothing_is_waited_for():
    async def answer() -> str:
        return "answer"

    assert await meanwhile(answer(), lambda: "work") == ("answer", "work")


@pytest.mark.parametrize("waits", [0, 1, 2])
async def test_an_error_is_the_callers(waits: int):
    async def refuse() -> None:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise LookupError("refused")

    with pytest.raises(LookupError, match="refused"):
        await meanwhile(refuse(), lambda: None)


@pytest.mark.parametrize("waits", [1, 2])
@pytest.mark.parametrize("survives", [False, True])
async def test_a_cancel_reaches_what_is_awaited_where_it_waits(waits: int, survives: bool):
    reached = asyncio.Event()
    cleaned = asyncio.Event()

    async def wait() -> str:
        for _ in range(waits - 1):
            await asyncio.sleep(0)
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # a cleanup that waits
            cleaned.set()
            if not survives:
                raise
        return "survived"

    async def work_meanwhile() -> tuple[str, str]:
        return await meanwhile(wait(), lambda: "work")

    call = asyncio.create_task(work_meanwhile())
    await reached.wait()
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])

    assert cleaned.is_set()
    assert call.cancelled() != survives
    if survives:
        assert call.result() == ("survived", "work")


async def test_a_scope_ends_what_is_awaited():
    with anyio.move_on_after(0.01) as scope:
        await meanwhile(anyio.sleep_forever(), lambda: None)

    assert scope.cancelled_caught


async def test_an_abandoned_call_closes_what_is_awaited():
    closed: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    async def call() -> None:
        await meanwhile(wait(), lambda: None)

    abandoned = call()
    abandoned.send(None)
    abandoned.close()

    assert closed == [True]
