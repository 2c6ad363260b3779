"""How many connections a worker has, as the page on running workers says."""

from __future__ import annotations

import asyncio

import pytest

from oxpull_async import Oxpull, Worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.integration.test_worker_wakeups import listening

POOL = 3
BESIDE = {"postgres": 2, "mariadb": 1}
"""One for the leases, and on PostgreSQL one that listens."""


@pytest.mark.engines("postgres", "mariadb")
async def test_a_worker_has_those_of_its_pool_and_few_beside(migrated_url: str, competitor: Competitor, engine: str):
    counted: list[int] = []
    ran: list[int] = []
    counting = asyncio.Lock()

    async with Oxpull(migrated_url, pool_size=POOL) as ox:

        @ox.task
        async def parent(number: int) -> None:
            await child.enqueue(number)

        @ox.task
        async def child(number: int) -> None:
            ran.append(number)
            if len(ran) % 50 == 0:
                async with counting:
                    counted.append(len(await aside(competitor.sessions)))

        async with ox.running(worker=Worker(ox, concurrency=50)):
            if engine == "postgres":
                await listening(ox)
            await asyncio.gather(*(parent.enqueue(number) for number in range(200)))
            await eventually(lambda: len(counted) == 4, within=60)

    assert 0 < max(counted) <= POOL + BESIDE[engine]
