"""What a task may raise to say what is to become of its row."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from oxpull_async import Discard, Oxpull, Retry, Snooze, TaskContext, TaskFailed, TaskStatus, Worker
from tests.log_lines import events


async def test_retry_fails_the_attempt_and_chooses_the_delay(ox: Oxpull):
    @ox.task(backoff=5)
    async def busy() -> None:
        raise Retry(timedelta(minutes=10), "the mail server is busy")

    before = datetime.now(UTC)
    result = await busy.enqueue()
    assert await ox.run_until_idle() == 1

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.READY, 1)
    assert result.run_after is not None
    assert timedelta(seconds=599) < result.run_after - before < timedelta(seconds=660)
    assert "the mail server is busy" in result.errors[0]["traceback"]


async def test_retry_without_a_delay_takes_the_tasks_own_backoff(ox: Oxpull):
    @ox.task(backoff=0, max_attempts=3)
    async def busy() -> None:
        raise Retry

    result = await busy.enqueue()
    assert await ox.run_until_idle() == 3

    assert (await result.refresh()).status == TaskStatus.FAILED


async def test_retry_is_bounded_by_the_rows_attempts(ox: Oxpull):
    @ox.task(max_attempts=2)
    async def busy() -> None:
        raise Retry(after=0)

    result = await busy.enqueue()
    assert await ox.run_until_idle() == 2

    assert (await result.refresh()).status == TaskStatus.FAILED


async def test_a_delay_that_is_none_gives_way_to_the_default(ox: Oxpull, caplog: pytest.LogCaptureFixture):
    @ox.task
    async def busy() -> None:
        raise Retry(after=-1)

    before = datetime.now(UTC)
    result = await busy.enqueue()
    await ox.run_until_idle()

    await result.refresh()
    assert result.run_after is not None
    assert result.run_after - before > timedelta(seconds=4)
    assert "task_policy_error" in events(caplog)


async def test_a_snoozed_row_is_as_if_it_had_never_been_claimed(ox: Oxpull):
    finished: list[Any] = []
    ox.on("finished", finished.append)

    @ox.task(max_attempts=1, unique=True)
    async def early() -> None:
        raise Snooze(after=600)

    before = datetime.now(UTC)
    result = await early.enqueue()
    assert await ox.run_until_idle() == 1

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch, row.worker_ids) == ("READY", 0, 2, "[]")
    assert (row.errors, row.started_at, row.locked_by, row.locked_at, row.lease_expires_at) == ("[]", *[None] * 4)
    assert row.run_after is not None
    assert timedelta(seconds=599) < row.run_after - before < timedelta(seconds=660)
    assert (await early.enqueue()).id == result.id
    assert finished == []


async def test_a_snooze_may_go_on_for_longer_than_the_budget(ox: Oxpull):
    seen: list[int] = []

    @ox.task(max_attempts=1, takes_context=True)
    async def early(context: TaskContext) -> str:
        seen.append(context.attempt)
        if len(seen) < 4:
            raise Snooze(after=0)
        return "now"

    result = await early.enqueue()
    assert await ox.run_until_idle() == 4

    assert await result.wait(timeout=10) == "now"
    assert seen == [1, 1, 1, 1]


async def test_a_snooze_does_not_raise_out_of_run_until_idle(ox: Oxpull):
    @ox.task
    async def early() -> None:
        raise Snooze(after=60)

    await early.enqueue()
    assert await ox.run_until_idle(raise_errors=True) == 1


async def test_discard_settles_the_row_with_its_reason(ox: Oxpull, caplog: pytest.LogCaptureFixture):
    finished: list[TaskStatus] = []
    ox.on("finished", lambda result: finished.append(result.status))

    @ox.task(max_attempts=5)
    async def pointless() -> None:
        raise Discard("the order is cancelled")

    result = await pointless.enqueue()
    assert await ox.run_until_idle() == 1

    with pytest.raises(TaskFailed, match="the order is cancelled"):
        await result.wait(timeout=10)
    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch, row.locked_by) == ("DISCARDED", 1, 1, None)
    assert row.finished_at is not None
    assert finished == [TaskStatus.DISCARDED]
    assert "task_discarded" in events(caplog)


async def test_a_hook_that_hangs_holds_up_neither_the_work_nor_the_end(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oxpull_async.runtime.worker._END_SECONDS", 0.2)
    told: list[Any] = []

    async def hang(result: Any) -> None:
        told.append(result.id)
        await anyio.sleep_forever()

    ox.on("finished", hang)

    @ox.task
    async def task(number: int) -> int:
        return number

    results = await task.enqueue_many([(number,) for number in range(20)])
    with anyio.fail_after(20):
        assert await Worker(ox, concurrency=2).run(until_idle=True) == 20

    assert [(await result.refresh()).status for result in results] == [TaskStatus.SUCCESSFUL] * 20
    assert told


async def test_a_hook_is_told_the_row_as_it_is_stored(ox: Oxpull):
    told: list[Any] = []
    ox.on("started", told.append)
    ox.on("finished", told.append)

    @ox.task
    async def task(number: int) -> int:
        return number + 1

    result = await task.enqueue(1)
    await ox.run_until_idle()

    stored = await ox.get_result(result.id)
    started, finished = told
    assert finished.model_dump() == stored.model_dump()
    assert (started.status, started.attempts, started.started_at) == (TaskStatus.RUNNING, 1, stored.started_at)


async def test_outcomes_are_logged_without_payloads(ox: Oxpull, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "oxpull_async")

    @ox.task
    async def early(secret: str) -> None:
        raise Snooze(after=60)

    await early.enqueue("swordfish")
    await ox.run_until_idle()

    assert "task_snoozed" in events(caplog)
    assert "swordfish" not in caplog.text
