"""Callers with a transaction of their own, an open `Oxpull` on the same database, and a competitor.

`caller` runs a test once per kind of connection and session, `level` once per isolation level of its engine,
`snapshot_level` once per level that reads from a snapshot. `@pytest.mark.engines(...)` narrows both, and a test may
name its handles by `@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)`.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from oxpull_async import Oxpull
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.integration.shared_database import SharedDatabases, empty_tables, shared_databases
from tests.joined.calls import SEND
from tests.joined.handles import HANDLES, LEVELS, ORDERS, READ_COMMITTED, Caller, Handle
from tests.scale import SCALE, in_turn
from tests.servers.databases import dialect_of, engines, mysql_urls
from tests.servers.process import free_port

__all__ = ["shared_databases"]


@dataclass(frozen=True)
class Way:
    """An engine, and how the caller reaches it."""

    engine: str
    handle: Handle

    @property
    def dialect(self) -> str:
        return self.handle.dialect

    def __str__(self) -> str:
        return str(self.handle) if self.engine in ("postgres", "sqlite") else f"{self.engine}-{self.handle}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])]
    if "way" not in metafunc.fixturenames or "way" in named:
        return
    ways = _wanted_ways(metafunc.definition, few="few" in metafunc.fixturenames)
    for name in ("level", "snapshot_level"):
        if name in metafunc.fixturenames and name not in named:
            pairs = [(way, level) for way in ways for level in _levels(way, name)]
            ids = [f"{way}-{level.lower().replace(' ', '_')}" for way, level in pairs]
            metafunc.parametrize(("way", name), pairs, ids=ids, indirect=True)
            return
    metafunc.parametrize("way", ways, ids=map(str, ways), indirect=True)


def _names(argnames: str | tuple[str, ...]) -> list[str]:
    return argnames.replace(" ", "").split(",") if isinstance(argnames, str) else list(argnames)


def _wanted_ways(test: pytest.Item, *, few: bool) -> list[Way]:
    wanted = [set(mark.args) for mark in test.iter_markers("engines")]
    return [
        Way(engine, handle)
        for engine in in_turn(engines(), test)
        for handle in HANDLES.values()
        if handle.dialect == dialect_of(engine) and _is_ready(handle)
        if all(names & {engine, handle.dialect} for names in wanted)
        if SCALE == "full" or handle.leads or not (few or engine in mysql_urls())
    ]


def _is_ready(handle: Handle) -> bool:
    return importlib.util.find_spec(f"oxpull_async.drivers.{handle.dialect}.session") is not None


def _levels(way: Way, name: str) -> list[str]:
    levels = [level for level in LEVELS[way.dialect] if SCALE == "full" or level in way.handle.levels]
    if name == "level":
        return levels
    return [] if way.dialect == "sqlite" else [level for level in levels if level != READ_COMMITTED]


@pytest.fixture
def few() -> None:
    """A small run looks at the leading handles of each engine only."""


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    if isinstance(request.param, str):
        handle = HANDLES[request.param]
        return Way("mariadb" if handle.dialect == "mysql" else handle.dialect, handle)
    way: Way = request.param
    return way


@pytest.fixture
def level(request: pytest.FixtureRequest) -> str:
    level: str = request.param
    return level


@pytest.fixture
def snapshot_level(request: pytest.FixtureRequest) -> str:
    level: str = request.param
    return level


@pytest.fixture
def handle(way: Way) -> Handle:
    return way.handle


@pytest.fixture(scope="session")
def urls_with_orders() -> set[str]:
    """The databases in which the callers' table has been made."""
    return set()


@pytest.fixture
def competitor(way: Way, shared_databases: SharedDatabases, urls_with_orders: set[str]) -> Iterator[Competitor]:
    """Another client of the same database, over another driver. All tables are empty."""
    url = shared_databases.url(way.engine)
    with Competitor(url) as competitor:
        if url not in urls_with_orders:
            competitor.run(ORDERS)
            urls_with_orders.add(url)
        yield competitor
    try:
        with Competitor(url) as cleaner:
            cleaner.be_impatient()
            cleaner.run("DELETE FROM orders")
            empty_tables(cleaner)
    except Exception:
        shared_databases.empty(way.engine)  # gives up a database that a test has left a transaction in
        raise


@pytest.fixture
def url(competitor: Competitor) -> str:
    """A database with all tables, and one of the caller's, all empty."""
    return competitor.url


@pytest.fixture
async def ox(url: str) -> AsyncIterator[Oxpull]:
    """An open `Oxpull` on the caller's database."""
    async with Oxpull(url) as ox:
        yield ox


@pytest.fixture
def send(ox: Oxpull) -> AnyTask:
    """A unique task, of which only the path is known here."""
    return ox.reference(SEND, unique=True)


@pytest.fixture
async def new_caller(way: Way, url: str) -> AsyncIterator[Callable[[], Awaitable[Caller]]]:
    """Makes further callers, which are closed at the end."""
    callers: list[Caller] = []

    async def make() -> Caller:
        caller = way.handle.make(url)
        await caller.open()
        callers.append(caller)
        return caller

    yield make
    for caller in callers:
        with anyio.move_on_after(5, shield=True), contextlib.suppress(Exception):
            await caller.close()


@pytest.fixture
async def caller(new_caller: Callable[[], Awaitable[Caller]]) -> Caller:
    """Somebody with a connection of their own, in no transaction yet."""
    return await new_caller()


@pytest.fixture
def somebody_waits(url: str) -> Callable[[], Awaitable[Any]]:
    """Returns once a session of this database is seen waiting for a lock."""

    async def seen() -> Any:
        def look() -> bool:
            with Competitor(url) as observer:
                return observer.waiting_sessions() > 0

        return await eventually(lambda: aside(look))

    return seen


@pytest.fixture
def dialect(way: Way) -> str:
    """Of the engine under test: "sqlite", "postgres" or "mysql"."""
    return way.dialect


@pytest.fixture
def isolates_snapshots(dialect: str, competitor: Competitor) -> bool:
    """Whether this is a MariaDB where it costs the transaction to touch a row that others have changed since."""
    if dialect != "mysql":
        return False
    found = competitor.rows("SHOW GLOBAL VARIABLES WHERE variable_name = 'innodb_snapshot_isolation'")
    return bool(found) and found[0][1] == "ON"


@pytest.fixture
def unused_port() -> int:
    """A port where nobody listens."""
    return free_port()
