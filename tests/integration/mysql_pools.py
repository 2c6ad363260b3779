"""Pools on the database under test, and procedures that show what becomes of their connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.mysql.pool import Pool
from oxpull_async.ports import Store
from oxpull_async.settings import make_settings
from tests.eventually import eventually
from tests.integration.competitor import Competitor

NOTHING = Statement("nothing", "SELECT 1")

Opened = Callable[..., Any]


@pytest.fixture
async def opened(migrated_url: str, competitor: Competitor) -> AsyncIterator[Opened]:
    """Opens pools with settings of their own; they are closed after the test. The competitor sees their sessions."""
    pools: list[Pool] = []

    async def open_pool(**settings: Any) -> Pool:
        pool = Pool(migrated_url, make_settings(settings))
        await pool.open()
        await pool.describe()
        pools.append(pool)
        return pool

    yield open_pool
    for pool in pools:
        await pool.close()


@pytest.fixture
async def pool(opened: Opened) -> Pool:
    opened_pool: Pool = await opened()
    return opened_pool


@pytest.fixture
async def store(migrated_url: str, competitor: Competitor) -> AsyncIterator[Store]:
    store = open_store(migrated_url, make_settings({}))
    await store.open()
    yield store
    await store.close()


def sleeping(seconds: float) -> Procedure[None]:
    yield Statement("sleep", f"SELECT SLEEP({seconds})")()  # written out, so that it can be seen to run


def answered() -> Procedure[Any]:
    result = yield NOTHING()
    return result.rows[0][0]


async def fill(pool: Pool, size: int = 5) -> None:
    """Have so many connections at rest."""
    async with anyio.create_task_group() as group:
        for _ in range(size):
            group.start_soon(pool.read, sleeping(0.1))


async def kill_all(competitor: Competitor) -> None:
    """End every session, and let the event loop hear of it."""
    for session in competitor.sessions():
        competitor.kill(session)
    await eventually(lambda: competitor.sessions() == [])
    for _ in range(3):
        await asyncio.sleep(0)


def is_running(competitor: Competitor, words: str) -> bool:
    running = competitor.rows("SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID()")
    return any(words in (info or "") for (info,) in running)
