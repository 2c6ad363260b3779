"""Requests of an ASGI app: each has a session of its own, and what it enqueues lives and dies with that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeAlias

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from starlette.middleware.base import BaseHTTPMiddleware

from oxpull_async import Oxpull
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.joined.calls import key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import Handle, sqlalchemy_url
from tests.scale import rounds

pytestmark = pytest.mark.parametrize(
    "way", ["postgresql+asyncpg-session", "sqlite+aiosqlite-session", "mysql+asyncmy-session"], indirect=True
)


async def _session(request: Request) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(request.app.state.engine) as session:
        yield session


Session: TypeAlias = Annotated[AsyncSession, Depends(_session)]


class Shop:
    """A service with two middlewares that run the endpoint in a task of their own."""

    def __init__(self, ox: Oxpull, url: str, driver: str, send: AnyTask) -> None:
        self.engine = create_async_engine(sqlalchemy_url(url, driver), pool_size=5, max_overflow=30)
        self.app = FastAPI()
        self.before_commit = asyncio.Event()
        self.may_commit = asyncio.Event()
        self.may_commit.set()

        self.app.state.engine = self.engine

        @self.app.post("/orders/{n}")
        async def create(n: int, db: Session, fail: bool = False) -> dict[str, Any]:
            await db.execute(text("INSERT INTO orders (n) VALUES (:n)"), {"n": n})
            result = await ox.bind(db).enqueue_unique(send, n)
            self.before_commit.set()
            await self.may_commit.wait()
            if fail:
                raise HTTPException(409)
            await db.commit()
            return {"id": str(result.id), "created": result.created}

        for _ in range(2):
            self.app.add_middleware(BaseHTTPMiddleware, dispatch=_pass_on)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://shop", timeout=30)


async def _pass_on(request: Any, call_next: Any) -> Any:
    return await call_next(request)


@pytest.fixture
async def shop(ox: Oxpull, url: str, handle: Handle, send: AnyTask) -> AsyncIterator[Shop]:
    shop = Shop(ox, url, handle.name.removesuffix("-session"), send)
    yield shop
    await shop.engine.dispose()


async def test_concurrent_requests_never_see_each_others_transactions(
    shop: Shop, competitor: Competitor, handle: Handle
):
    requests = rounds(small=12 if handle.dialect == "sqlite" else 24, full=100)
    failing = {n for n in range(requests) if random.random() < 0.5}
    async with shop.client() as client:
        answers = await asyncio.gather(
            *[client.post(f"/orders/{n}", params={"fail": n in failing}) for n in range(requests)]
        )

    assert {n for n, answer in enumerate(answers) if answer.status_code == 409} == failing
    kept = set(range(requests)) - failing
    assert own_rows(competitor) == kept
    assert set(competitor.locks()) == {key_of(n) for n in kept}
    no_lock_without_task_nor_task_without_lock(competitor)


async def test_a_request_that_is_cut_off_before_its_commit_leaves_nothing(
    shop: Shop, competitor: Competitor, send: AnyTask
):
    shop.may_commit.clear()
    async with shop.client() as client:
        request = asyncio.ensure_future(client.post("/orders/1"))
        await asyncio.wait_for(shop.before_commit.wait(), 10)
        request.cancel()
        await asyncio.wait([request])

    async def is_gone() -> None:
        assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]

    await eventually(is_gone)
    assert request.cancelled()
    assert own_rows(competitor) == set()
    assert competitor.counts() == (0, 0)
    assert (await send.enqueue(1)).created


async def test_a_request_that_is_cut_off_after_its_commit_leaves_its_task(shop: Shop, competitor: Competitor):
    async with shop.client() as client:
        request = asyncio.ensure_future(client.post("/orders/1"))

        async def committed() -> None:
            assert own_rows(competitor) == {1}

        await eventually(committed)
        request.cancel()
        await asyncio.wait([request])

    assert set(competitor.locks()) == {key_of(1)}
    no_lock_without_task_nor_task_without_lock(competitor)
