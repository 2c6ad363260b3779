"""Rows of dead workers, freed by the living."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from oxpull_async import Oxpull, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.log_lines import events

LONG_AGO = timedelta(hours=1)


def abandon(competitor: Competitor, task_id: UUID, *, ago: timedelta = LONG_AGO, **columns: Any) -> None:
    """Leave the row as a worker that died this long ago would have."""
    then = datetime.now(UTC) - ago
    dead = {
        "status": "RUNNING", "attempts": 1, "lease_epoch": 1, "locked_by": "dead-1-abcdefgh",
        "worker_ids": '["dead-1-abcdefgh"]', "locked_at": then, "lease_expires_at": then + timedelta(seconds=1),
        "started_at": then, "last_attempted_at": then,
    }  # fmt: skip
    competitor.set_task(task_id, **{**dead, **columns})


async def test_a_row_whose_worker_died_runs_again(ox: Oxpull, competitor: Competitor, caplog: pytest.LogCaptureFixture):
    reclaimed: list[Any] = []
    ox.on("reclaimed", lambda result: reclaimed.append((result.id, result.status)))

    @ox.task
    async def task() -> str:
        return "done"

    result = await task.enqueue()
    abandon(competitor, result.id)
    async with ox.running(worker=Worker(ox)):
        assert await result.wait(timeout=10) == "done"

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.attempts, row.lease_epoch, row.errors) == (2, 3, "[]")
    assert [told[0] for told in reclaimed] == [result.id]
    assert "tasks_reclaimed" in events(caplog)


async def test_a_row_without_attempts_left_is_lost(ox: Oxpull, competitor: Competitor):
    @ox.task(max_attempts=2)
    async def task() -> None: ...

    result = await task.enqueue()
    abandon(competitor, result.id, attempts=2, lease_epoch=3)

    assert await ox.run_until_idle() == 0

    row = await ox.store.get_task(result.id)
    await result.refresh()
    assert row is not None
    assert (row.status, row.lease_epoch, row.locked_by, row.locked_at) == ("LOST", 3, None, None)
    assert row.finished_at is not None
    assert [error["exception_class_path"] for error in result.errors] == ["django_ox.exceptions.TaskAbandoned"]


async def test_a_row_with_no_sign_of_a_lease_is_nobodys_to_reap(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    abandon(competitor, result.id, locked_at=None, lease_expires_at=None)

    assert await ox.run_until_idle() == 0
    assert (await result.refresh()).status == TaskStatus.RUNNING


@pytest.mark.parametrize(("seconds", "is_reaped"), [(310, True), (290, False)])
async def test_without_an_expiry_the_reapers_own_lease_decides(
    ox: Oxpull, competitor: Competitor, seconds: int, is_reaped: bool
):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    abandon(competitor, result.id, ago=timedelta(seconds=seconds), lease_expires_at=None)

    assert await ox.run_until_idle() == int(is_reaped)


async def test_a_stored_expiry_outweighs_the_reapers_shorter_lease(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    expiry = datetime.now(UTC) + timedelta(seconds=200)
    abandon(competitor, result.id, ago=timedelta(seconds=100), lease_expires_at=expiry)

    await Worker(ox, lease=10).run(until_idle=True)

    assert (await result.refresh()).status == TaskStatus.RUNNING


async def test_many_expired_rows_are_freed_pass_after_pass(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def task() -> None: ...

    for result in await task.enqueue_many([()] * 250):
        abandon(competitor, result.id)

    assert await ox.run_until_idle(concurrency=50) == 250


async def test_a_worker_with_a_short_lease_reaps_in_time(ox: Oxpull, competitor: Competitor):
    @ox.task(max_attempts=1)
    async def task() -> None: ...

    async with ox.running(worker=Worker(ox, lease=1, queues=["none"])):
        result = await task.enqueue()
        abandon(competitor, result.id)

        async def lost() -> None:
            assert (await result.refresh()).status == TaskStatus.LOST

        await eventually(lost)
