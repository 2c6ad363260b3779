"""The service under uvicorn, hypercorn and granian: start, load, and every way to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.asgi.running import SERVERS, Service, served
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.scale import rounds

pytestmark = [pytest.mark.timeout(180), pytest.mark.engines("postgres")]

every_server = pytest.mark.parametrize("server", SERVERS)
# The service's pool, one for its leases, and one that listens.
MOST_CONNECTIONS = 3 + 2
# Of the others, a small run has the first as an example.
a_server = pytest.mark.parametrize("server", SERVERS[: rounds(small=1, full=3)])
two_servers = pytest.mark.parametrize("server", SERVERS[: rounds(small=2, full=3)])  # they differ here
# uvicorn ends by the signal that it was sent, once all is done.
CLEAN = {0, -signal.SIGTERM, 128 + signal.SIGTERM}
CLEAN_BY_CTRL_C = {0, -signal.SIGINT, 128 + signal.SIGINT}


async def load(service: Service, calls: int) -> None:
    answers = await asyncio.gather(*[service.client.post(f"/add/{n}") for n in range(calls)])
    assert [answer.json() for answer in answers] == [n + 1 for n in range(calls)]


async def batches_are_called_back_once(service: Service, competitor: Competitor, batches: int) -> None:
    """Every process has a reconciler, and one of them leads."""
    names = [f"batch {number}" for number in range(batches)]
    await asyncio.gather(*[service.client.post(f"/batch/{name}") for name in names])
    await eventually(lambda: {event["name"] for event in service.events("whole")} == set(names), within=60)
    assert competitor.rows("SELECT COUNT(*) FROM oxpull_async_leader") == [(1,)]
    callbacks = competitor.rows("SELECT COUNT(*) FROM django_ox_oxtask WHERE task_path LIKE '%whole'")
    assert callbacks == [(batches,)]


async def nothing_is_left(service: Service, competitor: Competitor, lifespans: int = 1) -> None:
    def ended() -> None:
        assert len(service.events("stopped")) == len(service.events("started")) == lifespans, service.said()

    await eventually(ended, within=20)
    assert service.left() == []
    await eventually(lambda: competitor.sessions() == [], within=20)
    assert "never retrieved" not in service.said()
    assert "was destroyed" not in service.said()


@every_server
async def test_it_starts_works_and_stops(server: str, migrated_url: str, competitor: Competitor, tmp_path: Path):
    async with served(server, migrated_url, tmp_path) as service:
        await service.has_started()
        await load(service, 30)
        assert await service.stop() in CLEAN, service.said()

        await nothing_is_left(service, competitor)
        assert set(competitor.statuses().values()) == {"SUCCESSFUL"}


@a_server
async def test_four_processes_share_the_queue(server: str, migrated_url: str, competitor: Competitor, tmp_path: Path):
    async with served(server, migrated_url, tmp_path, "--workers", "4") as service:
        await service.has_started(4)
        await load(service, 60)
        assert len({event["pid"] for event in service.events("started")}) == 4
        await batches_are_called_back_once(service, competitor, 8)
        await eventually(lambda: len(competitor.sessions()) <= 4 * MOST_CONNECTIONS, within=20)
        assert await service.stop() in CLEAN, service.said()

        await nothing_is_left(service, competitor, lifespans=4)
        ran = Counter(event["number"] for event in service.events("ran"))
        assert {ran[number] for number in range(10, 60)} == {1}


@every_server
async def test_a_task_that_runs_at_the_end_may_finish(
    server: str, migrated_url: str, competitor: Competitor, tmp_path: Path
):
    async with served(server, migrated_url, tmp_path) as service:
        await service.has_started()
        await service.client.post("/hold/1")
        await eventually(lambda: service.events("holding") != [], within=20)
        if server == "uvicorn":
            assert await service.stop(signal.SIGINT) in CLEAN_BY_CTRL_C, service.said()
        else:
            assert await service.stop() in CLEAN, service.said()

        await nothing_is_left(service, competitor)
        assert list(competitor.statuses().values()) == ["SUCCESSFUL"]


@every_server
async def test_requests_are_served_while_the_loops_are_broken(
    server: str, migrated_url: str, competitor: Competitor, tmp_path: Path
):
    async with served(server, migrated_url, tmp_path) as service:
        await service.has_started()
        await service.client.post("/break")

        async def is_told() -> None:
            answer = await service.client.get("/health")
            assert answer.status_code == 503
            assert "broken on purpose" in answer.text

        await eventually(is_told, within=20)
        assert (await service.client.get("/slow/0")).json() == "served"
        assert await service.stop() in CLEAN, service.said()
        await nothing_is_left(service, competitor)


@two_servers
async def test_a_process_that_is_killed_leaves_its_rows_to_the_others(
    server: str, migrated_url: str, competitor: Competitor, tmp_path: Path
):
    def all_done() -> None:
        assert set(competitor.statuses().values()) == {"SUCCESSFUL"}

    async with served(server, migrated_url, tmp_path, "--workers", "2") as service:
        await service.has_started(2)
        await service.client.post("/hold/0.5")
        await eventually(lambda: service.events("holding") != [], within=20)
        os.kill(service.events("holding")[0]["pid"], signal.SIGKILL)
        if server == "uvicorn":
            await eventually(all_done, within=60)
            assert len(service.events("holding")) == 2
            return
        await service.has_ended()  # the others end all their processes when one is gone

    async with served(server, migrated_url, tmp_path):
        await eventually(all_done, within=60)


async def test_a_reload_ends_one_lifespan_and_begins_another(migrated_url: str, competitor: Competitor, tmp_path: Path):
    (tmp_path / "reloaded.py").write_text("from tests.asgi.service import app\n")
    options = ["--reload", "--reload-dir", str(tmp_path), "--app-dir", str(tmp_path)]
    async with served("uvicorn", migrated_url, tmp_path, *options, app="reloaded:app") as service:
        await service.has_started()
        (tmp_path / "reloaded.py").write_text("from tests.asgi.service import app  # changed\n")
        await service.has_started(2)
        assert len(service.events("stopped")) == 1
        await load(service, 10)
        assert await service.stop() in CLEAN, service.said()

        await nothing_is_left(service, competitor, lifespans=2)


async def test_a_client_that_listens_does_not_keep_a_server_for_ever(
    migrated_url: str, competitor: Competitor, tmp_path: Path
):
    options = ["--timeout-graceful-shutdown", "1"]
    async with served("uvicorn", migrated_url, tmp_path, *options) as service:
        await service.has_started()
        async with service.client.stream("GET", "/events") as response:
            lines = response.aiter_lines()
            assert await anext(lines) == 'data: {"number":0}'
            assert await service.stop() in CLEAN, service.said()
            with pytest.raises((httpx.HTTPError, StopAsyncIteration)):
                while True:
                    await anext(lines)

        await nothing_is_left(service, competitor)
