"""How many round trips each path takes, as `docs/explanation/round-trips.md` says.

Counted on the wire (or, on SQLite, in hops into the connection's thread) within a transaction that has begun, on a
connection that has done the same before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import StaticPool
from sqlalchemy.ext.asyncio import create_async_engine

from oxpull_async import Oxpull
from oxpull_async.enqueueing.bound import Bound
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import hold
from tests.joined.handles import (
    HANDLES,
    READ_COMMITTED,
    REPEATABLE_READ,
    Caller,
    Handle,
    SqlalchemyCaller,
    sqlalchemy_url,
)
from tests.joined.wire import Hops, Wire

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "round-trips.md"
WARM = 3
BULK = 100

Call: TypeAlias = Callable[[Bound, AnyTask, int], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Row:
    """One row of the page's table."""

    call: Call
    holder: str | None = None
    level: str = READ_COMMITTED
    changes_after: str | None = None
    """What the holder becomes after the transaction has first read something."""


def _single(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique(send, n)


def _bounded(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique(send.using(wait=1), n)


def _bulk(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique_many(send, [(n + step,) for step in range(BULK)])


def _plain(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue(_work(send), n)


def _plain_bulk(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_many(_work(send), [(n,)] * BULK)


def _work(send: AnyTask) -> AnyTask:
    return type(send)(None, "proof.work", type(send.options)(), send._home)


PATHS = {
    "unique, new": Row(_single),
    "unique, duplicate": Row(_single, holder="READY"),
    "unique, the key's last task is settled": Row(_single, holder="FAILED"),
    "unique, new, `using(wait=…)`": Row(_bounded),
    "unique, new, 100 in bulk": Row(_bulk),
    "plain": Row(_plain),
    "plain, 100 in bulk": Row(_plain_bulk),
    "REPEATABLE READ: duplicate": Row(_single, holder="READY", level=REPEATABLE_READ),
    "REPEATABLE READ: duplicate, claimed since": Row(
        _single, holder="READY", level=REPEATABLE_READ, changes_after="RUNNING"
    ),
}
COLUMNS = {
    "asyncpg": "asyncpg",
    "SQLAlchemy, asyncpg": "postgresql+asyncpg-connection",
    "SQLAlchemy, psycopg": "postgresql+psycopg-connection",
    "aiosqlite": "aiosqlite",
    "asyncmy": "asyncmy",
    "SQLAlchemy, asyncmy": "mysql+asyncmy-connection",
    "SQLAlchemy, aiomysql": "mysql+aiomysql-connection",
}


@pytest.mark.parametrize(("column", "way"), COLUMNS.items(), indirect=["way"], ids=list(COLUMNS))
async def test_each_path_takes_as_many_round_trips_as_the_page_says(
    ox: Oxpull, url: str, send: AnyTask, competitor: Competitor, handle: Handle, column: str
):
    told = _table()[column]
    measured = {}
    numbers = count(1)
    async with _wired(url, handle) as (caller, wire):
        for name, path in PATHS.items():
            if handle.dialect == "sqlite" and path.level == REPEATABLE_READ:
                measured[name] = "–"
                continue
            for _ in range(WARM):
                trips = await _trips(ox, send, caller, competitor, wire, path, handle, next(numbers) * 1000)
            measured[name] = str(trips)

    assert measured == told, measured


async def _trips(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, wire: Wire | Hops, path: Row, handle: Handle,
    number: int,
) -> int:  # fmt: skip
    holder = hold(competitor, number, status=path.holder) if path.holder else None
    await caller.begin(path.level)
    if handle.dialect != "sqlite":  # there the enqueue itself begins
        await caller.orders()
    if holder and path.changes_after:
        competitor.set_task(holder, status=path.changes_after)
    await asyncio.sleep(0)
    before = wire.trips
    await path.call(ox.bind(caller.bindable), send, number)
    taken = wire.trips - before
    await caller.rollback()
    return taken


@contextlib.asynccontextmanager
async def _wired(url: str, handle: Handle) -> AsyncIterator[tuple[Caller, Wire | Hops]]:
    """A caller whose trips are counted."""
    if handle.dialect == "sqlite":
        caller = handle.make(url)
        await caller.open()
        yield caller, Hops(caller.bindable)
        await caller.close()
        return
    async with Wire(url) as wire:
        caller = handle.make(wire.url)
        await caller.open()
        yield caller, wire
        await caller.close()


# What a session costs beyond its connection is SQLAlchemy's own, so that it has no column
@pytest.mark.parametrize("way", ["postgresql+asyncpg-session", "mysql+asyncmy-session"], indirect=True)
async def test_a_session_takes_no_more_round_trips_than_its_connection(
    ox: Oxpull, url: str, send: AnyTask, competitor: Competitor, handle: Handle
):
    column = next(name for name, other in COLUMNS.items() if other == handle.name.replace("session", "connection"))
    async with Wire(url) as wire:
        caller = HANDLES[handle.name].make(wire.url)
        assert isinstance(caller, SqlalchemyCaller)
        caller.engine = create_async_engine(sqlalchemy_url(wire.url, caller.driver), poolclass=StaticPool)
        await caller._start()
        numbers = count(1)
        for name in ("unique, new", "unique, duplicate"):
            for _ in range(WARM):
                trips = await _trips(ox, send, caller, competitor, wire, PATHS[name], handle, next(numbers) * 1000)
            assert str(trips) == _table()[column][name]
        await caller.close()


async def test_on_postgresql_a_unique_enqueue_is_three_round_trips_at_most():
    table = _table()
    for column in ("asyncpg", "SQLAlchemy, asyncpg", "SQLAlchemy, psycopg"):
        for row in ("unique, new", "unique, duplicate"):
            assert int(table[column][row]) <= 3


def _table() -> dict[str, dict[str, str]]:
    """The page's table by column, then row."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: {row[0]: row[at] for row in rows} for at, name in enumerate(header) if at}
