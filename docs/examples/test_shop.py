"""Tests of the tutorial's shop: its own Oxpull, on a database in memory that is new in each test."""

import pytest
import shop

from oxpull_async import Oxpull, TaskStatus
from oxpull_async.testing import assert_enqueued, freeze, refute_enqueued

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def oxpull_app() -> Oxpull:
    return shop.ox


async def test_calling_a_task_runs_its_function() -> None:
    assert await shop.send_invoice(1) == "invoice for order 1 sent"


async def test_an_order_is_invoiced_once_however_often_it_is_asked_for(oxpull: Oxpull) -> None:
    results = [await shop.send_invoice.enqueue(42) for _ in range(3)]

    await assert_enqueued(shop.send_invoice, args=[42])  # one row, not three
    await refute_enqueued(shop.send_invoice, args=[43])
    assert await oxpull.run_until_idle() == 1
    assert await results[2].wait(timeout=1) == "invoice for order 42 sent"


async def test_a_reminder_runs_a_week_later(oxpull: Oxpull) -> None:
    with freeze(oxpull) as clock:
        reminder = await shop.send_invoice.using(run_after=7 * 86400).enqueue(42)
        assert await oxpull.run_until_idle() == 0

        clock.move(7 * 86400)
        assert await oxpull.run_until_idle(raise_errors=True) == 1
    assert (await reminder.refresh()).status is TaskStatus.SUCCESSFUL
