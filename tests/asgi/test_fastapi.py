"""Dependencies of FastAPI: the queue, the queue in the request's transaction, and when that commits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import pytest
from anyio import from_thread
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from oxpull_async import NotOpen, Oxpull
from oxpull_async.integrations.fastapi import BoundOxpull, Queue, bound_to, health_router
from oxpull_async.integrations.starlette import health_endpoint, queue_of
from oxpull_async.testing import all_enqueued, override
from tests.asgi.clients import serving


@pytest.fixture
def ox() -> Oxpull:
    return Oxpull.in_memory()


async def test_an_endpoint_gets_the_queue_of_the_lifespan(ox: Oxpull):
    app = FastAPI(lifespan=ox.lifespan)
    seen: list[Oxpull] = []

    @app.get("/")
    async def endpoint(queue: Queue) -> None:
        seen.append(queue)

    async with serving(app) as client:
        assert (await client.get("/")).status_code == 200

    assert seen == [ox]
    assert not ox.is_open


async def test_a_lifespan_of_the_application_s_own_passes_it_on(ox: Oxpull):
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with ox.running():
            yield {"ox": ox, "greeting": "hello"}

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def endpoint(queue: Queue, request: Request) -> str:
        assert queue is ox
        return str(request.state.greeting)

    async with serving(app) as client:
        assert (await client.get("/")).json() == "hello"


async def test_a_plain_endpoint_enqueues_through_the_event_loop(ox: Oxpull):
    @ox.task
    async def greet(name: str) -> None: ...

    app = FastAPI(lifespan=ox.lifespan)

    @app.post("/")
    def endpoint() -> bool:
        return from_thread.run(greet.enqueue, "Ada").created

    async with serving(app) as client:
        assert (await client.post("/")).json() is True


async def test_without_a_lifespan_it_is_told_what_to_do(ox: Oxpull):
    app = FastAPI()

    @app.get("/")
    async def endpoint(queue: Queue) -> None: ...

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(NotOpen, match="lifespan=ox.lifespan"):
            await client.get("/")


async def test_the_lifespan_of_a_mounted_application_is_the_outer_one_s(ox: Oxpull):
    inner = FastAPI()

    @inner.get("/")
    async def endpoint(queue: Queue) -> bool:
        return queue is ox

    outer = Starlette(routes=[Mount("/inner", inner)], lifespan=ox.lifespan)
    async with serving(outer) as client:
        assert (await client.get("/inner/")).json() is True


async def test_a_starlette_endpoint_asks_the_request(ox: Oxpull):
    async def endpoint(request: Request) -> PlainTextResponse:
        assert queue_of(request) is ox
        return PlainTextResponse("yes")

    async with serving(Starlette(routes=[Route("/", endpoint)], lifespan=ox.lifespan)) as client:
        assert (await client.get("/")).text == "yes"


class Shop:
    """Orders on a SQLite file; ``events`` has what happened in its order."""

    def __init__(self, folder: Path, scope: Literal["function", "request"]) -> None:
        self.events: list[str] = []
        self.ox = Oxpull(f"sqlite:///{folder}/shop.db")
        self.engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/shop.db")
        self.fails_to_commit = False

        @self.ox.task(unique=True)
        async def send(order_id: int) -> None: ...

        async def open_session() -> AsyncIterator[AsyncSession]:
            async with AsyncSession(self.engine) as session:
                yield session
                if self.fails_to_commit:
                    raise RuntimeError("the disk is full")
                await session.commit()
                self.events.append("committed")

        Session = Annotated[AsyncSession, Depends(open_session, scope=scope)]  # noqa: N806
        BoundQueue = Annotated[BoundOxpull, Depends(bound_to(Session))]  # noqa: N806
        app = FastAPI(lifespan=self.ox.lifespan)

        async def order(order_id: int, session: Session, queue: BoundQueue) -> bool:
            await session.execute(text("INSERT INTO orders (n) VALUES (:n)"), {"n": order_id})
            result = await queue.enqueue(send, order_id)
            return result.created

        # The annotations are names of this function alone.
        order.__annotations__ |= {"session": Session, "queue": BoundQueue, "order_id": int}
        app.post("/orders/{order_id}")(order)
        self.send = send
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def telling(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.events.append(f"answered {message['status']}")
            await send(message)

        await self.app(scope, receive, telling)

    @property
    def router(self) -> Any:
        return self.app.router


@asynccontextmanager
async def open_shop(folder: Path, scope: Literal["function", "request"]) -> AsyncIterator[tuple[Shop, Any]]:
    shop = Shop(folder, scope)
    async with shop.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE orders (n INTEGER PRIMARY KEY)"))
    async with shop.ox:
        await shop.ox.migrate()
    try:
        async with serving(shop) as client:
            yield shop, client
    finally:
        await shop.engine.dispose()


@pytest.mark.parametrize(
    ("scope", "order_of_events"),
    [("function", ["committed", "answered 200"]), ("request", ["answered 200", "committed"])],
)
async def test_when_the_commit_comes(tmp_path: Path, scope: Literal["function", "request"], order_of_events: list[str]):
    async with open_shop(tmp_path, scope) as (shop, client):
        assert (await client.post("/orders/1")).json() is True
        assert len(await all_enqueued(shop.send)) == 1

    assert shop.events == order_of_events


@pytest.mark.parametrize(("scope", "status"), [("function", 500), ("request", 200)])
async def test_what_the_client_is_told_when_the_commit_fails(
    tmp_path: Path, scope: Literal["function", "request"], status: int
):
    async with open_shop(tmp_path, scope) as (shop, client):
        shop.fails_to_commit = True
        assert (await client.post("/orders/1")).status_code == status
        assert await all_enqueued(shop.send) == []


async def test_the_bound_queue_has_the_endpoint_s_own_session(tmp_path: Path):
    async with open_shop(tmp_path, "function") as (shop, client):
        assert (await client.post("/orders/1")).json() is True
        assert (await client.post("/orders/1")).status_code == 500  # its order exists already
        assert len(await all_enqueued(shop.ox)) == 1


class Checked(BaseModel):
    ok: bool


@pytest.mark.parametrize(("ok", "status"), [(True, 200), (False, 503)])
async def test_probes_are_answered(ok: bool, status: int):
    async def check() -> Checked:
        return Checked(ok=ok)

    app = FastAPI()
    app.include_router(health_router(check))
    app.include_router(health_router(check, path="/healthz"))
    app.mount("/plain", Starlette(routes=[Route("/health", health_endpoint(check))]))
    async with serving(app) as client:
        for path in ("/health", "/healthz", "/plain/health"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (status, {"ok": ok})


async def test_one_that_is_not_open_is_not_well(ox: Oxpull):
    async def check() -> Checked:
        return Checked(ok=ox.store is not None)

    app = FastAPI()
    app.include_router(health_router(check))
    async with serving(app) as client:
        answer = await client.get("/health")
    assert answer.status_code == 503
    assert "not open" in answer.json()["problem"]


async def test_an_application_is_tested_on_another_database():
    ox = Oxpull("postgresql://nobody@nowhere.invalid/none")
    app = FastAPI(lifespan=ox.lifespan)

    @ox.task
    async def send(order_id: int) -> None: ...

    @app.post("/orders/{order_id}")
    async def order(order_id: int) -> None:
        await send.enqueue(order_id)

    with override(ox):
        async with serving(app) as client:
            assert (await client.post("/orders/42")).status_code == 200
            assert [row.args for row in await all_enqueued(send)] == [[42]]


async def test_the_health_of_an_oxpull_is_what_a_probe_is_told(ox: Oxpull):
    app = FastAPI(lifespan=ox.lifespan)
    app.include_router(health_router(ox.health))
    async with serving(app) as client:
        answer = await client.get("/health")

    assert (answer.status_code, answer.json()["ok"]) == (200, True)
