"""Unique tasks and the workers that run them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from oxpull_async import Oxpull, TaskFailed, TaskStatus, Worker
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage


async def test_duplicates_of_a_running_task_write_nothing(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(unique=True)
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox)):
        first = await hold.enqueue()
        await stage.reached()
        results = [await hold.enqueue() for _ in range(10)]
        counts = competitor.counts()
        stage.open()
        await first.wait(timeout=10)

    assert {result.id for result in results} == {first.id}
    assert {result.status for result in results} == {TaskStatus.RUNNING}
    assert not any(result.created for result in results)
    assert counts == (1, 1)


async def test_a_duplicate_changes_nothing_of_the_running_row(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold(number: int) -> str:
        await stage.hold()
        return "ran once"

    async with ox.running(worker=Worker(ox)):
        first = await hold.enqueue_unique(1)
        await stage.reached()
        before = await ox.store.get_task(first.id)
        again = await hold.using(priority=9, run_after=60).enqueue_unique(1)
        after = await ox.store.get_task(first.id)
        stage.open()
        assert await again.wait(timeout=10) == "ran once"

    assert before is not None
    assert after is not None
    assert after == before
    assert stage.arrivals == 1


@pytest.mark.parametrize("ending", ["SUCCESSFUL", "FAILED", "DISCARDED"])
async def test_a_settled_task_frees_its_key_and_keeps_its_result(ox: Oxpull, ending: str):
    @ox.task(unique=True, max_attempts=1)
    async def task() -> str:
        if ending == "FAILED":
            raise ValueError("for good")
        return "kept"

    first = await task.enqueue()
    if ending == "DISCARDED":
        assert await ox.actions.discard(first.id)
    await ox.run_until_idle()
    second = await task.enqueue()

    assert second.created
    assert second.id != first.id
    assert (await ox.get_result(first.id)).status == ending
    if ending == "SUCCESSFUL":
        assert await first.wait(timeout=10) == "kept"
    else:
        with pytest.raises(TaskFailed):
            await first.wait(timeout=10)


async def test_a_success_removes_its_lock_and_a_failure_leaves_it(ox: Oxpull, competitor: Competitor):
    @ox.task(unique=True, max_attempts=1)
    async def task(fails: bool) -> None:
        if fails:
            raise ValueError

    failing = await task.enqueue(True)
    await task.enqueue(False)
    await ox.run_until_idle()

    assert list(competitor.locks().values()) == [failing.id]


async def test_a_task_that_enqueues_itself_gets_itself(migrated_url: str):
    async with Oxpull(migrated_url, pool_size=1) as ox:

        @ox.task(unique=True)
        async def again() -> list[Any]:
            result = await again.enqueue()
            return [str(result.id), result.created]

        first = await again.enqueue()
        with anyio.fail_after(10):
            assert await ox.run_until_idle(concurrency=1) == 1

        assert await first.wait(timeout=10) == [str(first.id), False]


async def test_two_ready_rows_of_one_key_block_nobody(ox: Oxpull, competitor: Competitor):
    fail = True

    @ox.task(unique=True, max_attempts=1)
    async def keyed() -> None:
        if fail:
            raise ValueError

    @ox.task
    async def other(number: int) -> None: ...

    older = await keyed.enqueue()
    await ox.run_until_idle()
    newer = await keyed.enqueue()
    assert await ox.actions.retry(older.id)
    assert list(competitor.locks().values()) == [newer.id]

    fail = False
    await other.enqueue_many([(number,) for number in range(50)])
    assert await ox.run_until_idle() == 52

    await ox.reap()
    assert (await ox.prune(older_than=0)).tasks == 52
    assert (await keyed.enqueue()).created


async def test_a_lost_task_frees_its_key_without_its_worker(ox: Oxpull, competitor: Competitor):
    @ox.task(unique=True, max_attempts=1)
    async def task() -> str:
        return "the second"

    first = await task.enqueue()
    competitor.set_task(first.id, status="LOST", attempts=1, lease_epoch=1)
    second = await task.enqueue()
    await ox.run_until_idle()

    assert second.created
    assert await second.wait(timeout=10) == "the second"
