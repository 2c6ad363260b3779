"""Tests of an application's tasks: a real queue in memory, no server, no sleeping."""

from collections.abc import AsyncIterator

import pytest

from oxpull_async import Oxpull, TaskFailed, TaskStatus

ox = Oxpull.in_memory()
sent: list[int] = []


@ox.task(unique=True, max_attempts=1)
async def send_invoice(order_id: int) -> str:
    if order_id < 0:
        raise ValueError("no such order")
    sent.append(order_id)
    return f"invoice {order_id}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def queue() -> AsyncIterator[Oxpull]:
    """The application's own Oxpull, with an empty database for each test."""
    sent.clear()
    async with ox:
        yield ox


@pytest.mark.anyio
async def test_calling_a_task_runs_its_function() -> None:
    assert await send_invoice(1) == "invoice 1"


@pytest.mark.anyio
async def test_an_order_is_invoiced_once_however_often_it_is_asked_for(queue: Oxpull) -> None:
    results = [await send_invoice.enqueue(42) for _ in range(3)]

    await queue.run_until_idle()

    assert [result.created for result in results] == [True, False, False]
    assert sent == [42]
    assert await results[0].wait(timeout=1) == "invoice 42"


@pytest.mark.anyio
async def test_a_bad_order_fails_with_its_error_stored(queue: Oxpull) -> None:
    result = await send_invoice.enqueue(-1)

    await queue.run_until_idle()

    with pytest.raises(TaskFailed, match="no such order"):
        await result.wait(timeout=1)
    assert result.status is TaskStatus.FAILED
