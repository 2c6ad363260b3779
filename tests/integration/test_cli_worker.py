"""``oxpull-async worker``: a process of its own, with signals and exit codes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oxpull_async import Oxpull, TaskStatus
from tests.eventually import eventually
from tests.integration.processes import until_begun, worker_process
from tests.scale import ONE_ENGINE

process_alone = pytest.mark.engines(*ONE_ENGINE)


async def test_a_burst_runs_what_is_due_and_exits(ox: Oxpull, migrated_url: str, tmp_path: Path):
    results = await ox.enqueue_many(ox.reference("queue_app.quick"), [(number,) for number in range(5)])

    async with worker_process(tmp_path, migrated_url, "--burst") as worker:
        assert await worker.exit_code() == 0

    assert [await result.wait(timeout=0) for result in results] == [0, 1, 2, 3, 4]


@process_alone
async def test_a_burst_on_an_empty_queue_exits_at_once(migrated_url: str, tmp_path: Path):
    async with worker_process(tmp_path, migrated_url, "--burst") as worker:
        assert await worker.exit_code() == 0


@process_alone
async def test_max_tasks_counts_claims(ox: Oxpull, migrated_url: str, tmp_path: Path):
    failing = await ox.reference("queue_app.failing", max_attempts=5).enqueue()

    async with worker_process(tmp_path, migrated_url, "--max-tasks", "2") as worker:
        assert await worker.exit_code() == 0

    await failing.refresh()
    assert (failing.status, failing.attempts) == (TaskStatus.READY, 2)


@process_alone
async def test_queues_narrow_what_is_taken(ox: Oxpull, migrated_url: str, tmp_path: Path):
    quick = ox.reference("queue_app.quick")
    taken = [await quick.using(queue_name=name).enqueue(1) for name in ("mail", "slow")]
    left = await quick.enqueue(1)

    async with worker_process(tmp_path, migrated_url, "--burst", "-q", "mail", "-q", "slow") as worker:
        assert await worker.exit_code() == 0

    assert [(await result.refresh()).status for result in taken] == [TaskStatus.SUCCESSFUL] * 2
    assert (await left.refresh()).status == TaskStatus.READY


@process_alone
async def test_the_first_signal_lets_tasks_finish(ox: Oxpull, migrated_url: str, tmp_path: Path):
    result = await ox.reference("queue_app.nap").enqueue()

    async with worker_process(tmp_path, migrated_url) as worker:
        await until_begun(tmp_path)
        worker.signal()
        assert await worker.exit_code() == 0

    assert await result.wait(timeout=0) == "rested"


async def test_a_task_beyond_the_shutdown_timeout_goes_back(ox: Oxpull, migrated_url: str, tmp_path: Path):
    result = await ox.reference("queue_app.hold").enqueue()

    async with worker_process(tmp_path, migrated_url, "--shutdown-timeout", "0.1") as worker:
        await until_begun(tmp_path)
        worker.signal()
        assert await worker.exit_code() == 0

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch) == ("READY", 0, 2)


async def test_the_second_signal_hands_rows_back_at_once(ox: Oxpull, migrated_url: str, tmp_path: Path):
    result = await ox.reference("queue_app.hold").enqueue()

    async with worker_process(tmp_path, migrated_url) as worker:
        await until_begun(tmp_path)
        worker.signal(signal.SIGINT)
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code() == 130

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch) == ("READY", 0, 2)


@process_alone
async def test_a_thread_that_hangs_does_not_keep_the_process(ox: Oxpull, migrated_url: str, tmp_path: Path):
    result = await ox.reference("queue_app.hang").enqueue()

    async with worker_process(tmp_path, migrated_url, "--shutdown-timeout", "0") as worker:
        await until_begun(tmp_path)
        worker.signal()
        assert await worker.exit_code() == 0

    assert (await result.refresh()).status == TaskStatus.RUNNING


@process_alone
async def test_the_third_signal_ends_the_process_there_and_then(ox: Oxpull, migrated_url: str, tmp_path: Path):
    await ox.reference("queue_app.hang").enqueue()

    async with worker_process(tmp_path, migrated_url) as worker:
        await until_begun(tmp_path)
        worker.signal()
        await worker.says("stopping")
        worker.signal()
        await worker.says("cancelling")
        worker.signal()
        assert await worker.exit_code() == 130


@pytest.mark.parametrize("attempts_left", [False, True])
async def test_the_key_of_a_killed_worker_is_held_until_its_lease_is_over(
    ox: Oxpull, migrated_url: str, tmp_path: Path, attempts_left: bool
):
    task = ox.reference("queue_app.hold", unique=True, max_attempts=3 if attempts_left else 1)
    first = await task.enqueue()

    async with worker_process(tmp_path, migrated_url) as worker:
        await until_begun(tmp_path)
        worker.signal(signal.SIGKILL)
        assert await worker.exit_code() == -signal.SIGKILL

    assert (await task.enqueue()).id == first.id

    async def reaped() -> None:
        reaped = await ox.reap()
        assert [*reaped.requeued, *reaped.lost] == [first.id]

    await eventually(reaped)
    again = await task.enqueue()
    if attempts_left:
        assert (again.id, again.status) == (first.id, TaskStatus.READY)
    else:
        assert again.created
        assert (await first.refresh()).status == TaskStatus.LOST
