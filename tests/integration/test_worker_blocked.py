"""A task that blocks the event loop: its lease is kept, and it's told of."""

from __future__ import annotations

import logging
import time

import pytest

from oxpull_async import Oxpull, TaskStatus, Worker
from tests.eventually import eventually
from tests.log_lines import events


async def test_a_task_that_blocks_the_loop_for_three_leases_keeps_its_lease_and_runs_once(
    ox: Oxpull, migrated_url: str
):
    ran: list[str] = []

    async with Oxpull(migrated_url) as other:

        @ox.task(max_attempts=5)
        async def block() -> str:
            ran.append("once")
            deadline = time.monotonic() + 3.5
            while time.monotonic() < deadline:
                time.sleep(0.05)
            return "done"

        result = await block.enqueue()
        assert await Worker(ox, lease=1).run(until_idle=True) == 1
        reaped = await other.store.reap(lease_seconds=1, limit=100, now=other.clock.now())

    await result.refresh()
    assert (result.status, result.attempts, ran) == (TaskStatus.SUCCESSFUL, 1, ["once"])
    assert not reaped.requeued


@pytest.mark.engines("sqlite")
async def test_a_blocked_loop_is_told_of_with_the_name_of_its_task(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("oxpull_async.runtime.watch.BLOCKED_SECONDS", 0.1)

    @ox.task
    async def block() -> None:
        deadline = time.monotonic() + 20
        while "event_loop_blocked" not in events(caplog) and time.monotonic() < deadline:
            time.sleep(0.02)

    @ox.task
    async def after() -> str:
        return "done"

    caplog.set_level(logging.WARNING, "oxpull_async")
    async with ox.running(worker=Worker(ox, concurrency=1, poll_interval=0.05)):
        result = await block.enqueue()
        await result.wait(timeout=30)
        assert await (await after.enqueue()).wait(timeout=10) == "done"
        await eventually(lambda: "event_loop_free" in events(caplog))

    (told,) = [record for record in caplog.records if getattr(record, "event", "") == "event_loop_blocked"]
    assert (told.task_path, told.task_id) == (block.path, str(result.id))  # type: ignore[attr-defined]
    assert __file__ in told.getMessage()
