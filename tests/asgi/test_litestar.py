"""The Litestar plugin: its lifespan, its dependency, its commands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar, get, post
from litestar.cli.main import litestar_group
from litestar.params import FromPath
from litestar.testing import AsyncTestClient

from oxpull_async import Oxpull, Worker
from oxpull_async.integrations.litestar import OxpullPlugin, Queue
from tests.log_lines import logging_restored

ROOT = Path(__file__).resolve().parents[2]

SHOP = """
from litestar import Litestar

from oxpull_async import Oxpull
from oxpull_async.integrations.litestar import OxpullPlugin

ox = Oxpull("sqlite:///shop.db")


@ox.task
async def send(order_id: int) -> None:
    print("sent", order_id, flush=True)


app = Litestar([], plugins=[OxpullPlugin(ox)])
"""


@pytest.fixture
def ox() -> Oxpull:
    return Oxpull.in_memory()


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    with logging_restored():
        yield


async def test_a_handler_gets_the_queue_and_the_worker_works(ox: Oxpull):
    @ox.task
    async def double(number: int) -> int:
        return 2 * number

    @post("/double/{number:int}")
    async def endpoint(number: FromPath[int], queue: Queue) -> dict[str, Any]:
        result = await queue.enqueue(double, number)
        return {"value": await result.wait(timeout=20)}

    app = Litestar([endpoint], plugins=[OxpullPlugin(ox, worker=Worker(ox))])
    async with AsyncTestClient(app) as client:
        assert (await client.post("/double/21")).json() == {"value": 42}
    assert not ox.is_open


async def test_the_dependency_s_name_is_the_application_s_to_choose(ox: Oxpull):
    @get("/")
    async def endpoint(tasks: Queue) -> bool:
        return tasks.is_open

    async with AsyncTestClient(Litestar([endpoint], plugins=[OxpullPlugin(ox, dependency_key="tasks")])) as client:
        assert (await client.get("/")).json() is True


async def test_what_the_application_declares_itself_stays(ox: Oxpull):
    events: list[str] = []

    async def lifespan(app: Litestar) -> Any:
        events.append(f"own, queue open: {ox.is_open}")

    @get("/")
    async def endpoint(queue: Queue) -> bool:
        return queue is ox

    app = Litestar([endpoint], plugins=[OxpullPlugin(ox)], on_startup=[lifespan])
    async with AsyncTestClient(app) as client:
        assert (await client.get("/")).json() is True
    assert events == ["own, queue open: True"]


def test_the_commands_work_on_the_application_s_queue(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)

    asyncio.run(enqueued(tmp_path / "shop.db"))

    assert "sent 42" in litestar(tmp_path, "oxpull", "worker", "--burst")


def test_options_of_the_commands_are_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "help_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LITESTAR_APP", "help_shop:app")

    with pytest.raises(SystemExit) as ended:
        litestar_group(["oxpull", "worker", "--help"])

    assert ended.value.code in (0, None)
    assert "--burst" in capsys.readouterr().out


async def enqueued(file: Path) -> None:
    async with Oxpull(f"sqlite:///{file}") as shop:
        await shop.migrate()
        await shop.enqueue(shop.reference("shop.send"), 42)


def litestar(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "litestar", "--app", "shop:app", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
