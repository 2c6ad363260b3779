"""A task that blocks the event loop: its lease is kept, and it's told of."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest

from oxpull_async import Oxpull, TaskContext, TaskStatus, Worker
from tests.eventually import eventually
from tests.log_lines import events
from tests.scale import rounds

LEASE = 2
LEASES = rounds(small=1, full=3)


async def test_a_task_that_blocks_the_loop_for_longer_than_its_lease_keeps_it_and_runs_once(
    ox: Oxpull, migrated_url: str
):
    ran: list[str] = []

    async def reap_meanwhile(task_id: UUID) -> None:
        """Elsewhere, until the row is held for so many lease lengths longer than its claim alone would have it."""
        async with Oxpull(migrated_url) as other:

            async def kept() -> None:
                reaped = await other.reap()
                row = await other.store.get_task(task_id)
                assert row is not None
                if reaped.requeued or reaped.lost or row.lease_expires_at is None or row.started_at is None:
                    raise RuntimeError("the lease was not kept")
                assert row.lease_expires_at > row.started_at + timedelta(seconds=(LEASES + 1) * LEASE)

            await eventually(kept, within=60)

    @ox.task(max_attempts=5, takes_context=True)
    async def block(context: TaskContext) -> str:
        ran.append("once")
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, reap_meanwhile(context.id)).result()
        return "done"

    result = await block.enqueue()
    assert await Worker(ox, lease=LEASE).run(until_idle=True) == 1

    await result.refresh()
    assert (result.status, result.attempts, ran) == (TaskStatus.SUCCESSFUL, 1, ["once"])


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
