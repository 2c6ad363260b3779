"""Tests without any database: what is enqueued runs at once."""

import pytest
import shop

from oxpull_async import TaskStatus
from oxpull_async.testing import inline

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def checkout(order_id: int) -> str:
    """Stands for code of yours that enqueues."""
    result = await shop.send_invoice.enqueue(order_id)
    return str(result.id)


async def test_checking_out_sends_an_invoice() -> None:
    with inline(shop.ox):
        task_id = await checkout(42)
        result = await shop.ox.get_result(task_id)

    assert result.status is TaskStatus.SUCCESSFUL
    assert result.return_value == "invoice for order 42 sent"
