"""The database server is restarted and killed under load: workers come back by themselves, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import anyio
import pytest

from oxpull_async import Oxpull, OxpullError
from tests.eventually import eventually
from tests.integration.chaos import assert_each_ran_to_its_end, crew
from tests.integration.competitor import Competitor
from tests.scale import rounds
from tests.servers import MariadbServer, PostgresServer, mariadb_server, postgres_server

pytestmark = [pytest.mark.timeout(rounds(small=180, full=900)), pytest.mark.engines("postgres", "mariadb")]

OUTAGES = rounds(small=2, full=20)


@pytest.fixture
def server(engine: str) -> Iterator[PostgresServer | MariadbServer]:
    """One that loses nothing of what it has acknowledged."""
    with postgres_server() if engine == "postgres" else mariadb_server() as server:
        yield server


async def test_workers_survive_a_server_that_is_restarted_and_killed(
    server: PostgresServer | MariadbServer, tmp_path: Path
):
    acknowledged: set[UUID] = set()
    stop = anyio.Event()

    async def keep_enqueueing(ox: Oxpull) -> None:
        work = ox.reference("queue_app.work", max_attempts=1000, takes_context=True)
        number = 0
        while not stop.is_set():
            number += 1
            try:
                acknowledged.add((await work.enqueue(number)).id)
            except OxpullError:  # it may be there, or not
                await anyio.sleep(0.1)
            await anyio.sleep(0.005)

    async def grows(by: int) -> None:
        wanted = len(acknowledged) + by
        await eventually(lambda: len(acknowledged) >= wanted, within=60)

    async with Oxpull(server.url) as ox:
        await ox.migrate()
        async with crew(tmp_path, server.url, 2) as workers, anyio.create_task_group() as group:
            group.start_soon(keep_enqueueing, ox)
            await eventually(lambda: len(workers.journal()) > 20, within=60)
            for number in range(OUTAGES):
                await anyio.to_thread.run_sync(server.stop if number % 2 else server.kill)
                await anyio.to_thread.run_sync(server.start)
                await grows(by=20)
            stop.set()
            # The same processes work on: nobody has started them again.
            with Competitor(server.url) as competitor:
                await eventually(lambda: _settled(competitor), within=90)
                assert_each_ran_to_its_end(competitor, workers.journal(), acknowledged)
        assert (await ox.health()).ok


async def _settled(competitor: Competitor) -> None:
    left = [status for status in competitor.statuses().values() if status in ("READY", "RUNNING")]
    assert not left, f"{len(left)} rows are left"


async def test_a_worker_waits_for_a_server_that_is_not_there(server: PostgresServer | MariadbServer, tmp_path: Path):
    async with Oxpull(server.url) as ox:
        await ox.migrate()
        async with crew(tmp_path, server.url, 1) as workers:
            work = ox.reference("queue_app.work", takes_context=True)
            assert (await (await work.enqueue(1)).wait(timeout=30))[0] == 1
            await anyio.to_thread.run_sync(server.kill)
            assert not (await ox.health()).ok
            await anyio.sleep(rounds(small=2, full=30))  # longer than its lease
            await anyio.to_thread.run_sync(server.start)

            await eventually(lambda: _well(ox), within=30)
            result = await work.enqueue(2)
            assert await result.wait(timeout=30) == [1, workers.workers[0].pid]


async def _well(ox: Oxpull) -> None:
    assert (await ox.health()).ok
