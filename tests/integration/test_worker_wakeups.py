"""How an idle worker comes to know of a row: hints of its process, of others, and the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import Oxpull, StoreError, Worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import spied

SELDOM = 3600


@pytest.mark.engines("postgres")
async def test_an_enqueue_in_another_process_wakes_an_idle_worker(ox: Oxpull, migrated_url: str):
    @ox.task
    async def task() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=SELDOM)), Oxpull(migrated_url) as other:
        await listening(ox)
        for _ in range(3):
            result = await other.reference(task.path).enqueue()
            assert await result.wait(timeout=10) == "done"


@pytest.mark.engines("postgres")
async def test_a_worker_listens_again_after_its_connection_was_lost(
    ox: Oxpull, migrated_url: str, competitor: Competitor
):
    @ox.task
    async def task() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=SELDOM)), Oxpull(migrated_url) as other:
        first = await listening(ox)
        for session in competitor.sessions():
            competitor.kill(session)
        await eventually(lambda: service(ox, "listener").last_turn_at not in (None, first))
        result = await other.reference(task.path).enqueue()
        assert await result.wait(timeout=10) == "done"


@pytest.mark.engines("postgres")
async def test_many_enqueues_are_told_of_a_few_times_and_of_the_last_one_surely(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch
):
    told = spied(monkeypatch, ox.store, "notify")

    @ox.task
    async def task(number: int) -> None: ...

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(task.enqueue(number))
    count = len(told)
    await ox.close()

    assert count <= 20
    assert 1 <= len(told) <= count + 2


@pytest.mark.engines("postgres")
async def test_what_cannot_be_told_harms_no_enqueue(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    async def notify(word: str) -> None:
        raise StoreError("no")

    monkeypatch.setattr(ox.store, "notify", notify)

    @ox.task
    async def task() -> str:
        return "done"

    result = await task.enqueue()
    await ox.run_until_idle()
    assert await result.wait(timeout=10) == "done"


@pytest.mark.engines("postgres")
async def test_without_notify_nobody_tells_or_listens(migrated_url: str, monkeypatch: pytest.MonkeyPatch):
    async with Oxpull(migrated_url, notify=False) as ox:
        told = spied(monkeypatch, ox.store, "notify")

        @ox.task
        async def task() -> str:
            return "done"

        async with ox.running(worker=Worker(ox, poll_interval=SELDOM)):
            assert await (await task.enqueue()).wait(timeout=10) == "done"
            names = [service.name for service in (await ox.health()).services]

    assert "listener" not in names
    assert told == []


async def test_a_deferred_row_starts_when_it_is_due_and_not_a_poll_later(ox: Oxpull):
    started: list[datetime] = []

    @ox.task
    async def task() -> None:
        started.append(datetime.now(UTC))

    async with ox.running(worker=Worker(ox, poll_interval=SELDOM)):
        result = await task.using(run_after=1).enqueue()
        await result.wait(timeout=30)

    assert result.run_after is not None
    assert timedelta(0) <= started[0] - result.run_after < timedelta(seconds=20)


async def test_a_retry_starts_when_it_is_due_and_not_a_poll_later(ox: Oxpull):
    tries: list[int] = []

    @ox.task(backoff=0.5)
    async def task() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ValueError
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=SELDOM)):
        result = await task.enqueue()
        assert await result.wait(timeout=30) == "done"


async def test_only_rows_of_the_workers_own_paths_and_queues_are_waited_for(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    soon, later = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=2)
    await task.using(run_after=later).enqueue()
    await task.using(run_after=soon, queue_name="others").enqueue()
    await ox.reference("elsewhere.tasks.task", run_after=soon).enqueue()

    assert await next_due(ox, [task.path], ["default"]) == later
    assert await next_due(ox, [task.path], None) == soon
    assert await next_due(ox, [task.path], ["empty"]) is None
    assert await next_due(ox, [], None) is None


async def next_due(ox: Oxpull, paths: list[str], queues: list[str] | None) -> datetime | None:
    return await ox.store.next_due(task_paths=paths, queues=queues, after=datetime.now(UTC))


def service(ox: Oxpull, name: str) -> Any:
    (found,) = [service for service in ox.health.roster.services if service.name == name]
    return found


async def listening(ox: Oxpull) -> datetime:
    """Since when the worker has listened."""
    await eventually(lambda: [service.name for service in ox.health.roster.services].count("listener") == 1)
    await eventually(lambda: service(ox, "listener").last_turn_at is not None)
    since: datetime = service(ox, "listener").last_turn_at
    return since
