"""What an operator does to rows, and what workers make of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from oxpull_async import Oxpull, TaskFailed, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage
from tests.integration.test_worker_wakeups import listening
from tests.log_lines import events


async def test_a_retried_row_gets_one_further_attempt(ox: Oxpull):
    @ox.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError

    result = await failing.enqueue()
    await ox.run_until_idle()
    assert await ox.actions.retry(result.id)

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch, row.max_attempts) == ("READY", 1, 2, 2)
    assert (row.run_after, row.finished_at) == (None, None)
    assert len((await result.refresh()).errors) == 1

    assert await ox.run_until_idle() == 1
    await result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskStatus.FAILED, 2, 2)


@pytest.mark.parametrize("status", ["READY", "WAITING", "RUNNING", "SUCCESSFUL", "DISCARDED"])
async def test_a_row_that_has_not_failed_is_not_retried(ox: Oxpull, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status)
    before = await ox.store.get_task(task_id)

    assert not await ox.actions.retry(task_id)

    assert await ox.store.get_task(task_id) == before


async def test_an_id_of_no_row_changes_nothing(ox: Oxpull):
    assert not await ox.actions.retry(uuid4())
    assert not await ox.actions.retry("not-a-uuid")
    assert not await ox.actions.discard("not-a-uuid")


async def test_many_are_retried_and_the_others_counted(ox: Oxpull, competitor: Competitor):
    failed = [competitor.insert_task(status="FAILED") for _ in range(2)]
    ready = competitor.insert_task()

    assert await ox.actions.retry_many([*failed, ready, "x"]) == (2, 2)
    assert set(competitor.statuses().values()) == {"READY"}


async def test_a_straggler_cannot_settle_a_row_that_was_retried(
    ox: Oxpull, competitor: Competitor, caplog: pytest.LogCaptureFixture
):
    stage = Stage()

    @ox.task(max_attempts=1)
    async def hold() -> str:
        await stage.hold()
        return "late"

    async with ox.running(worker=Worker(ox, queues=["mine"])):
        result = await hold.using(queue_name="mine").enqueue()
        await stage.reached()
        competitor.set_task(result.id, status="LOST", locked_by=None, queue_name="others")
        assert await ox.actions.retry(result.id)
        stage.open()
        await eventually(lambda: "task_lease_lost" in events(caplog))

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.lease_epoch, row.return_value) == ("READY", 2, None)


async def test_a_straggler_cannot_settle_a_row_that_was_discarded(
    ox: Oxpull, competitor: Competitor, caplog: pytest.LogCaptureFixture
):
    stage = Stage()

    @ox.task(max_attempts=1)
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox)):
        result = await hold.enqueue()
        await stage.reached()
        competitor.set_task(result.id, status="LOST", locked_by=None)
        assert await ox.actions.discard(result.id)
        stage.open()
        await eventually(lambda: "task_lease_lost" in events(caplog))

    assert (await result.refresh()).status == TaskStatus.DISCARDED


async def test_a_discarded_row_does_not_run(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    assert await ox.actions.discard(result.id)

    assert await ox.run_until_idle() == 0
    assert (await result.refresh()).finished_at is not None


async def test_a_retry_wakes_an_idle_worker(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def task() -> str:
        return "at last"

    async with ox.running(worker=Worker(ox, poll_interval=3600)):
        result = await task.using(run_after=3600).enqueue()
        competitor.set_task(result.id, status="FAILED", attempts=1)
        assert await ox.actions.retry(result.id)
        assert await result.wait(timeout=10) == "at last"


async def test_a_running_task_is_cancelled_at_the_next_renewal(
    ox: Oxpull, migrated_url: str, caplog: pytest.LogCaptureFixture
):
    stage = Stage()

    @ox.task(unique=True)
    async def hold() -> None:
        await stage.hold()

    worker = Worker(ox, lease=1, concurrency=1)
    async with Oxpull(migrated_url, notify=False) as silent, ox.running(worker=worker):
        result = await hold.enqueue()
        await stage.reached()
        assert await silent.actions.cancel(result.id)
        again = await hold.enqueue()
        await eventually(lambda: stage.cancelled == 1)
        stage.open()
        await again.wait(timeout=10)

    assert again.created
    assert (await result.refresh()).status == TaskStatus.DISCARDED
    assert "task_lease_lost" in events(caplog)


async def test_a_worker_of_the_same_process_notices_at_once_that_its_tasks_were_cancelled(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, lease=3600)):
        results = [await hold.enqueue() for _ in range(3)]
        await eventually(lambda: stage.arrivals == 3)
        assert (await ox.actions.cancel_many([result.id for result in results[:2]])).changed == 2
        await eventually(lambda: stage.cancelled == 2)
        stage.open()
        await results[2].wait(timeout=10)


@pytest.mark.engines("postgres")
async def test_a_worker_of_another_process_is_told_at_once_that_its_task_was_cancelled(ox: Oxpull, migrated_url: str):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, lease=3600)):
        await listening(ox)
        result = await hold.enqueue()
        await stage.reached()
        async with Oxpull(migrated_url) as other:  # told at its end at the latest
            assert await other.actions.cancel_many([result.id, *(uuid4() for _ in range(500))]) == (1, 500)
        await eventually(lambda: stage.cancelled == 1)


async def test_whoever_waits_for_a_cancelled_task_is_told(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    assert await ox.actions.cancel_many([result.id, result.id, "x"]) == (1, 2)

    with pytest.raises(TaskFailed) as told:
        await result.wait(timeout=10)
    assert told.value.status == TaskStatus.DISCARDED


async def test_an_operator_s_word_frees_a_dead_worker_s_row(ox: Oxpull, competitor: Competitor):
    far = datetime.now(UTC) + timedelta(days=1)
    lease: dict[str, Any] = {
        "locked_by": "dead",
        "locked_at": datetime.now(UTC),
        "lease_expires_at": far,
        "lease_epoch": 1,
    }
    task_id = competitor.insert_task(status="RUNNING", attempts=1, **lease)
    assert not (await ox.reap()).requeued

    assert await ox.actions.expire_lease(task_id)
    assert list((await ox.reap()).requeued) == [task_id]
    assert not await ox.actions.expire_lease(task_id)
