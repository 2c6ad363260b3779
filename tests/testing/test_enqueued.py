"""``assert_enqueued`` and its kin."""

from __future__ import annotations

import asyncio

import pytest

from oxpull_async import InvalidTask, Oxpull, TaskRouter, TaskStatus
from oxpull_async.runtime.listing import every_row
from oxpull_async.tasks import AnyTask
from oxpull_async.testing import all_enqueued, assert_enqueued, refute_enqueued


@pytest.fixture
def send(ox: Oxpull) -> AnyTask:
    @ox.task(queue_name="mail")
    async def send(order_id: object, copy: bool = False) -> None: ...

    return send


async def test_a_row_is_found_by_its_task_and_what_else_is_asked(ox: Oxpull, send: AnyTask):
    result = await send.enqueue((1, 2), copy=True)

    assert (await assert_enqueued(send)).id == result.id
    assert (await assert_enqueued(send, args=[(1, 2)], kwargs={"copy": True}, queue_name="mail")).id == result.id
    await assert_enqueued(send, status=TaskStatus.READY)
    await refute_enqueued(send, args=[])
    await refute_enqueued(send, kwargs={})
    await refute_enqueued(send, queue_name="default")
    await refute_enqueued(send, status=TaskStatus.SUCCESSFUL)


async def test_rows_count_whatever_has_become_of_them(ox: Oxpull, send: AnyTask):
    await send.enqueue(1)

    await ox.run_until_idle()

    assert (await assert_enqueued(send)).status is TaskStatus.SUCCESSFUL


async def test_all_come_in_the_order_of_their_enqueues(ox: Oxpull, send: AnyTask):
    @ox.task
    async def other() -> None: ...

    for n in range(3):
        await send.enqueue(n)
    await other.enqueue()

    assert [row.args for row in await all_enqueued(send)] == [[0], [1], [2]]
    assert [row.task_path for row in await all_enqueued(ox)] == [send.path] * 3 + [other.path]


async def test_what_is_there_instead_is_told(ox: Oxpull, send: AnyTask):
    with pytest.raises(AssertionError, match=r"one row of .*send args=\[3\].* 0\.\n.* no row at all"):
        await assert_enqueued(send, args=(3,))
    await send.enqueue(1)
    with pytest.raises(AssertionError, match=r"Of this task there are:\n .*args=\[1\]"):
        await assert_enqueued(send, args=(3,))
    await send.enqueue(1)
    with pytest.raises(AssertionError, match="there are 2"):
        await assert_enqueued(send)
    with pytest.raises(AssertionError, match=r"expected no row of .*args=\[1\]"):
        await refute_enqueued(send, args=(1,))


async def test_a_timeout_waits_for_a_row_and_no_longer(ox: Oxpull, send: AnyTask):
    enqueued = asyncio.get_running_loop().create_task(send.enqueue(1))

    await assert_enqueued(send, timeout=10)
    assert len(await all_enqueued(send, timeout=10)) == 1
    await refute_enqueued(send, args=[2], timeout=0.05)
    await enqueued


async def test_a_task_that_belongs_to_no_oxpull_is_told():
    router = TaskRouter()

    @router.task
    async def stray() -> None: ...

    with pytest.raises(InvalidTask, match="include"):
        await assert_enqueued(stray)


async def test_every_row_is_listed_however_many_there_are(ox: Oxpull, send: AnyTask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oxpull_async.runtime.listing._PAGE", 3)
    results = await send.enqueue_many([(n,) for n in range(10)])

    assert {row.id async for row in every_row(ox.store)} == {result.id for result in results}
