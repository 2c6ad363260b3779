"""Django with a lifespan, under uvicorn, hypercorn and granian."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from tests.asgi.running import SERVERS, served
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.scale import rounds

HERE = Path(__file__).parent

pytestmark = [pytest.mark.timeout(180), pytest.mark.engines("postgres")]


@pytest.mark.parametrize(
    ("server", "workers"),
    [*((server, 1) for server in SERVERS), *((server, 2) for server in SERVERS[: rounds(small=1, full=3)])],
)
async def test_the_oxpull_lives_as_long_as_the_server(
    server: str, workers: int, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INTEROP_DATABASE_URL", migrated_url)
    options = ["--workers", str(workers)] if workers > 1 else []
    app = "django_project.asgi:application"
    with Competitor(migrated_url) as competitor:
        async with served(server, migrated_url, tmp_path, *options, app=app, directory=HERE) as service:
            await service.has_started(workers)
            calls = [service.client.get(f"/async/{n}/{end}") for n in range(10) for end in ("undo", "commit")]
            answers = await asyncio.gather(*calls)
            assert {answer.status_code for answer in answers} == {200}, service.said()
            assert competitor.counts() == (10, 10)
            assert await service.stop() in {0, -signal.SIGTERM, 128 + signal.SIGTERM}, service.said()

            await eventually(lambda: len(service.events("stopped")) == workers, within=20)
            assert service.left() == []
            assert "never retrieved" not in service.said()
        await eventually(lambda: competitor.sessions() == [], within=20)
