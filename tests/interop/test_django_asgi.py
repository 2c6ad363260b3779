"""``with_lifespan``: the server opens the Oxpull before Django's first request, and closes it after the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django.core.asgi import get_asgi_application
from django_project import views

from oxpull_async import NotOpen, Oxpull
from oxpull_async.integrations.django import with_lifespan

REQUEST = {
    "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
    "path": "/async/1/commit", "raw_path": b"/async/1/commit", "query_string": b"", "root_path": "", "headers": [],
}  # fmt: skip


class Server:
    """The server's side of one ASGI conversation."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        return await self.orders.get()

    async def send(self, message: Any) -> None:
        await self.answers.put(message)


async def test_the_oxpull_is_open_while_django_serves(django_here: str, monkeypatch: pytest.MonkeyPatch):
    ox = Oxpull(django_here)
    monkeypatch.setattr(views, "oxen", [ox])
    application, server, visitor = with_lifespan(get_asgi_application(), ox.lifespan), Server(), Server()

    life = asyncio.ensure_future(application({"type": "lifespan"}, server.receive, server.send))
    await server.orders.put({"type": "lifespan.startup"})
    assert await server.answers.get() == {"type": "lifespan.startup.complete"}

    await visitor.orders.put({"type": "http.request", "body": b"", "more_body": False})
    await application(REQUEST, visitor.receive, visitor.send)
    assert (await visitor.answers.get())["status"] == 200

    await server.orders.put({"type": "lifespan.shutdown"})
    assert await server.answers.get() == {"type": "lifespan.shutdown.complete"}
    await life
    with pytest.raises(NotOpen):
        await ox.enqueue(ox.reference("a.task"))


@pytest.mark.parametrize("phase", ["startup", "shutdown"])
async def test_a_failure_is_told_to_the_server(phase: str):
    @asynccontextmanager
    async def failing(app: object) -> AsyncIterator[None]:
        if phase == "startup":
            raise RuntimeError("no database")
        yield
        raise RuntimeError("no database")

    application, server = with_lifespan(get_asgi_application(), failing), Server()
    for order in ("startup", "shutdown"):
        await server.orders.put({"type": f"lifespan.{order}"})

    with pytest.raises(RuntimeError):
        await application({"type": "lifespan"}, server.receive, server.send)

    answers = [server.answers.get_nowait() for _ in range(server.answers.qsize())]
    assert answers[-1] == {"type": f"lifespan.{phase}.failed", "message": "RuntimeError: no database"}
