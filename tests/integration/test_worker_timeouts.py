"""Time limits: what ends by itself, what is cancelled, and what has its row taken away."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import Oxpull, TaskContext, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration.stage import Stage
from tests.log_lines import events

TIMEOUT = "django_ox.exceptions.TaskTimeout"
A_WHILE = 0.4
"""Seconds that a task may take whose thread must have begun by then, on a busy machine too."""


async def test_a_thread_that_ends_within_the_grace_has_its_value_kept(ox: Oxpull):
    begun, release = threading.Event(), threading.Event()

    @ox.task(timeout=A_WHILE, takes_context=True)
    def work(context: TaskContext) -> str:
        begun.set()
        while not context.cancelled:
            release.wait(0.01)
        return "late, but done"

    result = await work.enqueue()
    await ox.run_until_idle()

    assert begun.is_set()
    assert await result.wait(timeout=10) == "late, but done"


async def test_a_thread_that_raises_within_the_grace_has_timed_out(ox: Oxpull):
    @ox.task(timeout=A_WHILE, max_attempts=1, takes_context=True)
    def work(context: TaskContext) -> None:
        while not context.cancelled:
            time.sleep(0.005)
        raise ValueError("interrupted")

    result = await work.enqueue()
    await ox.run_until_idle()

    await result.refresh()
    assert (result.status, result.errors[0]["exception_class_path"]) == (TaskStatus.FAILED, TIMEOUT)
    assert "ValueError: interrupted" in result.errors[0]["traceback"]


async def test_a_thread_that_outlives_the_grace_loses_its_row_and_the_worker_must_be_recycled(
    ox: Oxpull, caplog: pytest.LogCaptureFixture
):
    release, ended = threading.Event(), threading.Event()

    @ox.task(timeout=A_WHILE)
    def hang() -> str:
        release.wait(30)
        ended.set()
        return "too late"

    @ox.task
    async def other() -> None: ...

    result = await hang.enqueue()
    worker = Worker(ox, grace=0.05)
    try:
        assert await worker.run(recycle=True) == 1
        assert worker.must_recycle
        left = await other.enqueue()
        before = await result.refresh()
    finally:
        release.set()
    await eventually(ended.is_set)

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch, row.return_value) == ("READY", 1, 2, None)
    assert row.run_after is not None
    assert row.run_after > datetime.now(UTC)
    assert [error["exception_class_path"] for error in before.errors] == [TIMEOUT]
    assert {"task_taken_away", "worker_must_recycle"} <= set(events(caplog))
    assert (await left.refresh()).status == TaskStatus.READY


async def test_a_worker_that_recycles_lets_its_other_tasks_end(ox: Oxpull):
    release = threading.Event()
    stage = Stage()

    @ox.task(timeout=A_WHILE)
    def hang() -> None:
        release.wait(30)

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "done"

    worker = Worker(ox, grace=0.05)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run(recycle=True))
            result = await hold.enqueue()
            await stage.reached()
            await hang.enqueue()
            await eventually(lambda: worker.must_recycle)
            stage.open()
    finally:
        release.set()

    assert running.result() == 2
    assert (await result.refresh()).return_value == "done"


async def test_a_worker_that_is_not_asked_to_recycle_goes_on_beside_the_thread_that_hangs(ox: Oxpull):
    release = threading.Event()

    @ox.task(timeout=A_WHILE, max_attempts=1)
    def hang() -> None:
        release.wait(30)

    @ox.task
    def quick() -> str:
        return "done"

    worker = Worker(ox, concurrency=1, grace=0.05, poll_interval=0.05)
    try:
        async with ox.running(worker=worker):
            hung = await hang.enqueue()
            result = await quick.enqueue()
            assert await result.wait(timeout=10) == "done"
            assert worker.must_recycle
        assert (await hung.refresh()).status == TaskStatus.FAILED
    finally:
        release.set()


async def test_a_coroutine_that_swallows_its_cancel_loses_its_row_and_its_place(
    ox: Oxpull, caplog: pytest.LogCaptureFixture
):
    stop = asyncio.Event()
    ended = asyncio.Event()

    @ox.task(timeout=0.05, max_attempts=1)
    async def deaf() -> str:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    @ox.task
    async def quick() -> str:
        return "done"

    worker = Worker(ox, concurrency=1, grace=0.05, poll_interval=0.05)
    async with ox.running(worker=worker):
        late = await deaf.enqueue()
        result = await quick.enqueue()
        assert await result.wait(timeout=10) == "done"
        stop.set()
        await ended.wait()

    row = await ox.store.get_task(late.id)
    assert row is not None
    assert (row.status, row.lease_epoch, row.return_value) == ("FAILED", 2, None)
    assert not worker.must_recycle
    assert "task_taken_away" in events(caplog)


async def test_a_stop_takes_the_row_from_what_is_in_its_grace(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oxpull_async.runtime.worker._END_SECONDS", 0.4)
    release = threading.Event()
    late = threading.Event()

    @ox.task(timeout=A_WHILE, takes_context=True)
    def hang(context: TaskContext) -> None:
        while not context.cancelled:
            time.sleep(0.005)
        late.set()
        release.wait(30)

    try:
        async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
            result = await hang.enqueue()
            await eventually(late.is_set)
        row = await ox.store.get_task(result.id)
    finally:
        release.set()

    assert row is not None
    assert (row.status, row.lease_epoch) == ("READY", row.attempts + 1)
    assert TIMEOUT in row.errors


async def test_a_task_knows_its_deadline(ox: Oxpull):
    seen: dict[str, Any] = {}

    @ox.task(timeout=60, takes_context=True)
    async def look(context: TaskContext) -> None:
        seen.update(deadline=context.deadline, remaining=context.remaining, cancelled=context.cancelled)

    before = datetime.now(UTC)
    await look.enqueue()
    await ox.run_until_idle()

    assert timedelta(seconds=59) < seen["deadline"] - before < timedelta(seconds=120)
    assert 0 < seen["remaining"] <= 60
    assert seen["cancelled"] is False


async def test_a_task_without_a_timeout_has_no_deadline(ox: Oxpull):
    seen: list[Any] = []

    @ox.task(takes_context=True)
    async def look(context: TaskContext) -> None:
        seen.extend([context.deadline, context.remaining])

    await look.enqueue()
    await ox.run_until_idle()

    assert seen == [None, None]
