"""A database that goes away and comes back under a worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from oxpull_async import ConnectionLost, Oxpull, StoreError, Worker, WrongDatabase
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.drivers._store import SqlLeaseKeeper
from oxpull_async.runtime import worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage
from tests.joined.wire import Wire
from tests.log_lines import events


@pytest.mark.engines("postgres", "mysql")
async def test_a_worker_survives_the_end_of_all_its_connections(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "survived"

    async with ox.running(worker=Worker(ox, poll_interval=0.05)):
        first = await hold.enqueue()
        await stage.reached()
        for session in competitor.sessions():
            competitor.kill(session)
        stage.open()

        async def settled() -> None:
            row = competitor.row(first.id, "status")
            assert row == ("SUCCESSFUL",)

        await eventually(settled)
        second = await hold.enqueue()
        assert await second.wait(timeout=10) == "survived"


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.timeout(120)
async def test_a_worker_outlives_a_server_that_falls_silent_and_can_be_stopped_meanwhile(
    migrated_url: str, competitor: Competitor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "_END_SECONDS", 0.5)
    bounds = {"statement_timeout": 1, "connect_timeout": 1, "pool_timeout": 1, "close_timeout": 1}
    async with Wire(migrated_url) as wire:
        ox = Oxpull(wire.url, **bounds)

        @ox.task
        async def task() -> None: ...

        def is_settled(task_id: UUID) -> bool:
            return competitor.row(task_id, "status") == ("SUCCESSFUL",)

        async with ox.running(worker=Worker(ox, poll_interval=0.05)):
            wire.silence()
            await eventually(lambda: "service_failed" in events(caplog), within=60)
            found = competitor.insert_task(task_path=task.path)
            wire.restore()
            await eventually(lambda: is_settled(found), within=60)
            caplog.clear()

            wire.silence()
            await eventually(lambda: "service_failed" in events(caplog), within=60)
            began = time.monotonic()

        assert time.monotonic() - began < 30


async def test_a_settle_that_fails_for_a_while_lands_in_the_end(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    @ox.task
    async def task() -> str:
        return "landed"

    failing_first(monkeypatch, ox.store, "settle", times=3, error=ConnectionLost("gone"))
    async with ox.running(worker=Worker(ox)):
        result = await task.enqueue()
        assert await result.wait(timeout=10) == "landed"
        await eventually(lambda: "service_recovered" in events(caplog))


async def test_claims_that_fail_for_a_while_are_tried_again(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    @ox.task
    async def task() -> str:
        return "claimed"

    failing_first(monkeypatch, ox.store, "claim", times=3, error=WrongDatabase("the tables aren't there yet"))
    async with ox.running(worker=Worker(ox, poll_interval=0.05)):
        result = await task.enqueue()
        assert await result.wait(timeout=10) == "claimed"


async def test_one_missed_renewal_costs_no_lease(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    renewals = failing_first(monkeypatch, SqlLeaseKeeper, "renew", times=1, error=ConnectionLost("gone"))
    async with ox.running(worker=Worker(ox, lease=1)):
        result = await hold.enqueue()
        await eventually(lambda: len(renewals) >= 5)
        stage.open()
        await result.wait(timeout=10)

    assert (stage.arrivals, stage.cancelled, result.attempts) == (1, 0, 1)


async def test_a_value_that_the_database_refuses_is_a_failed_attempt_of_its_own(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch
):
    @ox.task(max_attempts=1)
    async def task(value: str) -> str:
        return value

    original = ox.store.settle

    async def settle(outcomes: Sequence[Any]) -> Any:
        if any(outcome.settlement.return_value == '"poison"' for outcome in outcomes):
            raise StoreError("value too long for its column")
        return await original(outcomes)

    monkeypatch.setattr(ox.store, "settle", settle)
    results = await task.enqueue_many([("good",), ("poison",), ("fine",)])
    await ox.run_until_idle()

    assert [(await result.refresh()).status for result in results] == [
        TaskStatus.SUCCESSFUL,
        TaskStatus.FAILED,
        TaskStatus.SUCCESSFUL,
    ]
    assert "value too long for its column" in results[1].errors[0]["traceback"]


async def test_a_run_that_ends_raises_what_keeps_it_from_beginning(database_url: str):
    async with Oxpull(database_url) as ox:
        with pytest.raises(WrongDatabase, match="migrate"):
            await ox.run_until_idle()


def failing_first(
    monkeypatch: pytest.MonkeyPatch, owner: Any, operation: str, *, times: int, error: Exception
) -> list[bool]:
    """Let an operation fail so many times; returns whether it succeeded, call by call."""
    original = getattr(owner, operation)
    succeeded: list[bool] = []

    async def flaky(*args: Any, **kwargs: Any) -> Any:
        succeeded.append(len(succeeded) >= times)
        if not succeeded[-1]:
            raise error
        return await original(*args, **kwargs)

    monkeypatch.setattr(owner, operation, flaky)
    return succeeded
