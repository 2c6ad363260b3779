"""The engines of a run: where each one's database comes from."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oxpull_async import Oxpull
from oxpull_async.benchmark.floors import Floor, open_floor
from tests.servers import mariadb_server, postgres_server


@dataclass(frozen=True, slots=True)
class Engine:
    """One column of figures. ``database`` gives the URL of a new database."""

    name: str
    database: Callable[[], AbstractAsyncContextManager[str]]
    synchronous: Literal["NORMAL", "FULL"] | None = None


@asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[tuple[Oxpull, Floor]]:
    """An Oxpull with its tables, and the floor beside it in the same database."""
    settings = {} if engine.synchronous is None else {"synchronous": engine.synchronous}
    async with engine.database() as url, Oxpull(url, **settings) as ox:
        await ox.migrate()
        async with open_floor(url, ox.settings) as floor:
            yield ox, floor


def engines(name: str | None) -> list[Engine]:
    """Those of one name, or all."""
    makers = {"postgres": _postgres, "sqlite": _sqlite, "mariadb": _mariadb}
    return [engine for maker in ([makers[name]] if name else makers.values()) for engine in maker()]


def _postgres() -> list[Engine]:
    @asynccontextmanager
    async def database() -> AsyncIterator[str]:
        with postgres_server() as server:
            yield server.url

    return [Engine("PostgreSQL", database)]


def _mariadb() -> list[Engine]:
    @asynccontextmanager
    async def database() -> AsyncIterator[str]:
        with mariadb_server() as server:
            yield server.url

    return [Engine("MariaDB", database)]


def _sqlite() -> list[Engine]:
    @asynccontextmanager
    async def database() -> AsyncIterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'bench.db'}"

    levels: tuple[Literal["FULL", "NORMAL"], ...] = ("FULL", "NORMAL")
    return [Engine(f"SQLite, synchronous {level}", database, level) for level in levels]
