"""Dependencies of tasks and the state that they find: when they're opened, what they get, what they hide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import anyio
import pytest

from oxpull_async import InvalidArguments, InvalidTask, NotOpen, Oxpull, TaskContext, TaskFailed, Worker
from oxpull_async.integrations.depends import CallArgument, Depends, Provided, current_task
from oxpull_async.testing import inline


@dataclass
class Session:
    events: list[str]

    async def use(self, what: str) -> None:
        self.events.append(what)


@pytest.fixture
async def ox() -> AsyncIterator[Oxpull]:
    async with Oxpull.in_memory() as ox:
        yield ox


@pytest.fixture
def events() -> list[str]:
    return []


async def test_a_dependency_is_open_while_the_task_runs(ox: Oxpull, events: list[str]):
    @asynccontextmanager
    async def open_session() -> AsyncIterator[Session]:
        events.append("open")
        try:
            yield Session(events)
        finally:
            events.append("close")

    @ox.task
    async def send(order_id: int, session: Session = Depends(open_session)) -> str:
        await session.use(f"order {order_id}")
        return "sent"

    result = await send.enqueue(42)
    await ox.run_until_idle(raise_errors=True)

    assert events == ["open", "order 42", "close"]
    assert (result.args, await result.wait(1)) == ([42], "sent")


async def test_it_is_closed_when_the_task_fails_and_its_own_failure_is_the_task_s(ox: Oxpull, events: list[str]):
    @asynccontextmanager
    async def open_session() -> AsyncIterator[Session]:
        try:
            yield Session(events)
        except LookupError:
            events.append("rolled back")
            raise

    def unavailable() -> str:
        raise ConnectionError("no server")

    @ox.task(max_attempts=1)
    async def failing(session: Session = Depends(open_session)) -> None:
        raise LookupError("gone")

    @ox.task(max_attempts=1)
    async def not_begun(server: str = Depends(unavailable)) -> None:
        events.append("never")

    results = [await failing.enqueue(), await not_begun.enqueue()]
    await ox.run_until_idle()

    assert events == ["rolled back"]
    for result, words in zip(results, ["LookupError: gone", "ConnectionError: no server"], strict=True):
        with pytest.raises(TaskFailed, match=words):
            await result.wait(1)


async def test_callers_neither_give_nor_see_them(ox: Oxpull):
    @ox.task
    async def send(order_id: int, server: Annotated[str, Depends(lambda: "smtp")] = Provided) -> str:
        return f"{server} {order_id}"

    with pytest.raises(InvalidArguments):
        await send.enqueue(1, "other")
    with pytest.raises(InvalidArguments):
        await send.enqueue(1, server="other")


async def test_they_know_the_task_and_its_arguments(ox: Oxpull):
    def describe(order_id: int = CallArgument(), context: TaskContext = Depends(current_task)) -> str:
        return f"order {order_id}, attempt {context.attempt} of {context.max_attempts}"

    @ox.task(takes_context=True)
    async def send(context: TaskContext, order_id: int, words: str = Depends(describe)) -> str:
        assert context is current_task()
        return words

    by_position, by_name = await send.enqueue(1), await send.enqueue(order_id=2)
    await ox.run_until_idle(raise_errors=True)

    assert [await by_position.wait(1), await by_name.wait(1)] == [
        "order 1, attempt 1 of 3", "order 2, attempt 1 of 3",
    ]  # fmt: skip
    with pytest.raises(NotOpen):
        current_task()


async def test_they_go_with_pydantic_and_inline(ox: Oxpull):
    @ox.task(pydantic=True)
    async def charge(price: Decimal, rate: Decimal = Depends(lambda: Decimal(2))) -> Decimal:
        return price * rate

    with inline(ox):
        assert (await charge.enqueue(Decimal("1.5"))).return_value == "3.0"


async def test_one_that_nobody_provides_is_told(ox: Oxpull):
    with pytest.raises(InvalidTask, match="Provided"):

        @ox.task
        async def send(server: str = Provided) -> None: ...


async def test_a_plain_function_cannot_have_them(ox: Oxpull):
    with pytest.raises(InvalidTask, match="async def"):

        @ox.task
        def send(server: str = Depends(lambda: "smtp")) -> None: ...


@dataclass
class Resources:
    sent: list[int] = field(default_factory=list)
    is_open: bool = True


async def test_tasks_find_the_state_that_their_worker_has_opened(ox: Oxpull):
    made: list[Resources] = []

    @ox.task_state
    async def resources() -> AsyncIterator[Resources]:
        made.append(Resources())
        async with anyio.create_task_group():  # a cancel scope that is held open
            yield made[-1]
        made[-1].is_open = False

    @ox.task(takes_context=True)
    async def send(context: TaskContext[Resources], order_id: int) -> bool:
        context.state.sent.append(order_id)
        return context.state.is_open

    async with ox.running(worker=Worker(ox)), ox.running(worker=Worker(ox)):
        results = await send.enqueue_many([(n,) for n in range(20)])
        assert all([await result.wait(20) for result in results])
    assert [(sorted(each.sent), each.is_open) for each in made] == [(list(range(20)), False)]

    await send.enqueue(20)
    await ox.run_until_idle(raise_errors=True)
    assert [(each.sent, each.is_open) for each in made[1:]] == [([20], False)]


async def test_a_state_that_cannot_be_opened_keeps_the_worker_from_working(ox: Oxpull):
    @ox.task_state
    @asynccontextmanager
    async def resources() -> AsyncIterator[None]:
        raise ConnectionError("no server")
        yield

    @ox.task
    async def send() -> None: ...

    result = await send.enqueue()
    with pytest.raises(ConnectionError):
        await ox.run_until_idle()
    assert (await result.refresh()).status == "READY"


async def test_a_worker_that_is_cancelled_meanwhile_leaves_nothing(ox: Oxpull, events: list[str]):
    begun = asyncio.Event()

    @ox.task_state
    async def resources() -> AsyncIterator[None]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("closed")
        yield

    before = asyncio.all_tasks()
    worker = asyncio.get_running_loop().create_task(Worker(ox).run())
    await asyncio.wait_for(begun.wait(), 20)
    worker.cancel()
    await asyncio.wait([worker])

    assert (worker.cancelled(), events) == (True, ["closed"])
    assert asyncio.all_tasks() == before


async def test_without_one_there_is_none_and_without_a_worker_it_is_not_open(ox: Oxpull):
    seen: list[Any] = []

    @ox.task(takes_context=True)
    async def look(context: TaskContext) -> None:
        seen.append(context.state)

    await look.enqueue()
    await ox.run_until_idle(raise_errors=True)
    assert seen == [None]

    @ox.task_state
    async def resources() -> AsyncIterator[int]:
        yield 7

    with pytest.raises(NotOpen):
        _ = ox.task_state_keeper.value
    with inline(ox):
        await look.enqueue()
    assert seen == [None, 7]
    for second in (resources, 1):
        with pytest.raises(InvalidTask):
            ox.task_state(second)  # type: ignore[type-var]
