"""Workers that are killed or frozen under load: every task is settled, and none runs after that."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from oxpull_async import EnqueueResult, Oxpull
from tests.eventually import eventually
from tests.integration.chaos import assert_each_ran_to_its_end, crew, no_key_is_held_twice
from tests.integration.competitor import Competitor
from tests.integration.processes import worker_process
from tests.scale import rounds

pytestmark = pytest.mark.timeout(rounds(small=180, full=900))

WORKERS = rounds(small=2, full=8)
KILLS = rounds(small=3, full=250)
KEYS = rounds(small=40, full=200)


async def all_settled(competitor: Competitor) -> None:
    pending = [status for status in competitor.statuses().values() if status in ("READY", "RUNNING")]
    assert not pending


async def test_workers_that_are_killed_at_random_lose_nothing(
    ox: Oxpull, migrated_url: str, competitor: Competitor, tmp_path: Path
):
    unique = ox.reference("queue_app.work", unique=True, max_attempts=1000, takes_context=True)
    plain = ox.reference("queue_app.work_in_thread", max_attempts=1000, takes_context=True)
    created: dict[Any, EnqueueResult] = {}
    stop = anyio.Event()

    async def keep_enqueueing() -> None:
        """A key that is free is taken again; one that is held names its holder."""
        number = 0
        while not stop.is_set():
            key = random.randrange(KEYS)
            result = await unique.enqueue(key)
            if result.created:
                created[result.id] = result
            else:
                assert result.id in created
            plain_result = await plain.enqueue(number)
            created[plain_result.id] = plain_result
            number += 1
            await anyio.sleep(0.01)

    async with crew(tmp_path, migrated_url, WORKERS) as workers, anyio.create_task_group() as group:
        group.start_soon(no_key_is_held_twice, migrated_url)
        group.start_soon(keep_enqueueing)
        await eventually(lambda: len(workers.journal()) > 20, within=60)
        for _ in range(KILLS):
            await anyio.sleep(random.uniform(0.05, 0.8))
            await workers.kill_one()
        stop.set()
        await eventually(lambda: all_settled(competitor), within=120)
        group.cancel_scope.cancel()

    assert_each_ran_to_its_end(competitor, workers.journal(), set(created))
    for key in range(KEYS):  # nobody holds a key any more
        assert (await unique.enqueue(key)).created


@pytest.mark.engines("sqlite", "postgres", "mariadb")
async def test_what_a_frozen_worker_writes_after_its_lease_lands_nowhere(
    ox: Oxpull, migrated_url: str, competitor: Competitor, tmp_path: Path
):
    work = ox.reference("queue_app.work", max_attempts=10, takes_context=True)
    async with crew(tmp_path, migrated_url, 0) as workers:
        result = await work.enqueue(1, seconds=1.5)
        async with worker_process(tmp_path, migrated_url) as frozen:
            await eventually(lambda: workers.journal()[result.id] == [1], within=30)
            frozen.signal(signal.SIGSTOP)
            await workers.start()
            value = await result.wait(timeout=60)
            assert value == [2, workers.workers[0].pid]
            before = await ox.store.get_task(result.id)

            frozen.signal(signal.SIGCONT)
            await frozen.says("lost its lease")
            workers.workers[0].signal(signal.SIGKILL)
            again = await work.enqueue(2)
            assert await again.wait(timeout=30) == [1, frozen.pid]

        assert await ox.store.get_task(result.id) == before
    assert workers.journal()[result.id] == [1, 2]
