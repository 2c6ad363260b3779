"""How a worker ends: what it lets finish, what it hands back, and what it leaves to its lease."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import anyio
import pytest

from oxpull_async import Oxpull, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration.stage import Stage
from tests.log_lines import events


async def test_a_stopping_worker_lets_its_tasks_finish_and_claims_no_more(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "done"

    worker = Worker(ox, concurrency=1)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        result = await hold.enqueue()
        left = await hold.enqueue()
        await stage.reached()
        worker.stop()
        stage.open()

    assert running.result() == 1
    assert (await result.refresh()).status == TaskStatus.SUCCESSFUL
    assert (await left.refresh()).status == TaskStatus.READY


async def test_a_task_that_does_not_finish_in_time_is_handed_back_with_its_attempt(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
        result = await hold.enqueue()
        await stage.reached()

    assert stage.cancelled == 1
    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch, row.worker_ids) == ("READY", 0, 2, "[]")
    assert (row.started_at, row.locked_by, row.locked_at, row.lease_expires_at) == (None, None, None, None)
    assert (row.errors, row.run_after) == ("[]", None)


async def test_a_row_handed_back_holds_its_key_all_along(ox: Oxpull):
    stage = Stage()
    enqueued: set[object] = set()

    @ox.task(unique=True)
    async def hold() -> None:
        await stage.hold()

    first = await hold.enqueue()
    over = asyncio.Event()

    async def enqueue_again_and_again() -> None:
        while not over.is_set():
            enqueued.add((await hold.enqueue()).id)

    async with anyio.create_task_group() as group:
        async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
            await stage.reached()
            group.start_soon(enqueue_again_and_again)
            await eventually(lambda: bool(enqueued))
        over.set()

    assert enqueued == {first.id}
    assert (await first.refresh()).status == TaskStatus.READY


async def test_what_a_cancelled_task_returns_after_all_is_kept(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def stubborn() -> str:
        try:
            await stage.hold()
        except asyncio.CancelledError:
            return "saved my work"
        return "undisturbed"

    async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
        result = await stubborn.enqueue()
        await stage.reached()

    assert await result.wait(timeout=10) == "saved my work"


async def test_an_error_that_answers_the_cancel_is_no_failed_attempt(ox: Oxpull):
    stage = Stage()

    @ox.task(max_attempts=1)
    async def translating() -> None:
        try:
            await stage.hold()
        except asyncio.CancelledError:
            raise ConnectionError("cancelled during execution") from None

    async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
        result = await translating.enqueue()
        await stage.reached()

    await result.refresh()
    assert (result.status, result.attempts, result.errors) == (TaskStatus.READY, 0, [])


async def test_a_task_that_ignores_its_cancel_is_left_to_its_lease_and_the_others_go_back(
    ox: Oxpull, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("oxpull_async.runtime.worker._END_SECONDS", 0.4)
    deaf = asyncio.Event()
    stage = Stage()

    @ox.task
    async def ignoring() -> None:
        while not deaf.is_set():
            try:
                await deaf.wait()
            except asyncio.CancelledError:
                continue

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
        first = await ignoring.enqueue()
        second = await hold.enqueue()
        await stage.reached()

        async def running() -> None:
            assert (await first.refresh()).status == TaskStatus.RUNNING

        await eventually(running)

    assert (await first.refresh()).status == TaskStatus.RUNNING
    assert (await second.refresh()).status == TaskStatus.READY
    assert "task_left_running" in events(caplog)
    deaf.set()
    await eventually(lambda: "task_outcome_unrecorded" in events(caplog))


async def test_a_thread_cannot_be_stopped_and_its_row_is_left_to_its_lease(ox: Oxpull):
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @ox.task
    def hang() -> None:
        begun.set()
        release.wait(30)
        ended.set()

    try:
        worker = Worker(ox, shutdown_timeout=0.1)
        async with ox.running(worker=worker):
            result = await hang.enqueue()
            await eventually(begun.is_set)
            before = time.monotonic()
        took = time.monotonic() - before
    finally:
        release.set()
    await eventually(ended.is_set)

    await result.refresh()
    assert took < 2
    assert (result.status, result.attempts) == (TaskStatus.RUNNING, 1)


async def test_a_stop_at_once_waits_for_nothing(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    worker = Worker(ox, shutdown_timeout=3600)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        result = await hold.enqueue()
        await stage.reached()
        worker.stop()
        worker.stop(at_once=True)

    assert running.result() == 0
    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.READY, 0)


async def test_a_stop_before_the_run_ends_it_at_once_and_is_then_forgotten(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    worker = Worker(ox)
    worker.stop()
    await worker.run()

    assert await worker.run(until_idle=True) <= 1
    assert (await result.refresh()).status == TaskStatus.SUCCESSFUL


async def test_a_run_that_is_cancelled_hands_its_rows_back(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    running = asyncio.create_task(Worker(ox).run())
    result = await hold.enqueue()
    await stage.reached()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.READY, 0)


async def test_a_host_that_is_cancelled_twice_still_gets_an_orderly_end(ox: Oxpull):
    stage = Stage()
    entered = asyncio.Event()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async def lifespan() -> None:
        async with ox.running(worker=Worker(ox, shutdown_timeout=0.2)):
            entered.set()
            await asyncio.Event().wait()

    host = asyncio.create_task(lifespan())
    await entered.wait()
    result = await hold.enqueue()
    await stage.reached()
    host.cancel()
    await asyncio.sleep(0)
    host.cancel()
    with pytest.raises(asyncio.CancelledError):
        await host

    assert (await result.refresh()).status == TaskStatus.READY
    assert [task for task in asyncio.all_tasks() if "supervisor" in task.get_name()] == []


async def test_a_lifespan_may_be_left_in_another_task_than_it_was_entered_in(ox: Oxpull):
    @ox.task
    async def task() -> str:
        return "done"

    lifespan = ox.running(worker=Worker(ox))
    await asyncio.create_task(lifespan.__aenter__())
    result = await task.enqueue()
    assert await result.wait(timeout=10) == "done"
    await asyncio.create_task(lifespan.__aexit__(None, None, None))

    assert await ox.run_until_idle() == 0


async def test_a_worker_in_a_host_leaves_its_signal_handlers_alone(ox: Oxpull):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async with ox.running(worker=Worker(ox)):
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    assert during == before


async def test_a_worker_that_breaks_does_not_bring_its_host_down(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    worker = Worker(ox)
    broken = asyncio.Event()

    async def run() -> None:
        broken.set()
        raise RuntimeError("a defect")

    monkeypatch.setattr(worker, "run", run)
    async with ox.running(worker=worker):
        await broken.wait()
        await eventually(lambda: "service_ended" in events(caplog))
        await ox.store.get_tasks([])
