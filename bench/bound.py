"""Unique enqueues in a caller's transaction, beside the two INSERTs that the caller would write by hand.

A hundred to a transaction, so that it's them that are measured, and not the commits. By hand it's a savepoint as well:
without one a duplicate would cost the caller the whole transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from oxpull_async import Oxpull
from oxpull_async.benchmark.floors import COLUMN_COUNT, COLUMNS, Floor, Values, task_rows

PER_TRANSACTION = 100
LOCK_COLUMNS = "task_id, task_path, queue_name, created_at"

Work: TypeAlias = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Caller:
    """A connection, its transactions and savepoints, and a statement run over it."""

    bindable: Any
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    savepoint: Callable[[], AbstractAsyncContextManager[Any]]
    execute: Callable[[str, Values], Awaitable[Any]]
    marks: Callable[[int], Sequence[str]]


OpenCaller: TypeAlias = Callable[[str, str], AbstractAsyncContextManager[Caller]]


def by_bind(open_caller: OpenCaller, function: Callable[[int], None]) -> Callable[[Oxpull, Floor], Work]:
    """``ox.bind(connection).enqueue_unique``."""

    def made(ox: Oxpull, floor: Floor) -> Work:
        task = ox.task(function)

        async def work(count: int) -> None:
            async with open_caller(*_database(ox)) as caller:
                for numbers in _parts(range(count)):
                    async with caller.transaction():
                        for number in numbers:
                            await ox.bind(caller.bindable).enqueue_unique(task, number)

        return work

    return made


def by_hand(open_caller: OpenCaller) -> Callable[[Oxpull, Floor], Work]:
    """A savepoint, and an INSERT for the lock row and for the task row each."""

    def made(ox: Oxpull, floor: Floor) -> Work:
        url, synchronous = _database(ox)
        key = "`key`" if url.startswith("mysql") else "key"

        async def work(count: int) -> None:
            async with open_caller(url, synchronous) as caller:
                lock_marks, task_marks = ", ".join(caller.marks(5)), ", ".join(caller.marks(COLUMN_COUNT))
                lock = f"INSERT INTO oxpull_oxpulluniquelock ({key}, {LOCK_COLUMNS}) VALUES ({lock_marks})"
                task = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({task_marks})"
                for rows in _parts(list(task_rows(count))):
                    async with caller.transaction():
                        for row in map(_encoding(url), rows):
                            async with caller.savepoint():
                                await caller.execute(lock, (str(row[0]) + "-" * 28, row[0], row[1], row[4], row[-2]))
                                await caller.execute(task, row)

        return work

    return made


@asynccontextmanager
async def driver_caller(url: str, synchronous: str) -> AsyncIterator[Caller]:
    """The bare driver's connection."""
    openers = {"postgresql": _asyncpg_caller, "sqlite": _aiosqlite_caller, "mysql": _asyncmy_caller}
    async with openers[urlsplit(url).scheme](url, synchronous) as caller:
        yield caller


@asynccontextmanager
async def sqlalchemy_caller(url: str, synchronous: str) -> AsyncIterator[Caller]:
    """SQLAlchemy's connection over the same driver."""
    scheme, _, rest = url.partition("://")
    driver = {"postgresql": "asyncpg", "sqlite": "aiosqlite", "mysql": "asyncmy"}[scheme]
    engine = create_async_engine(f"{scheme}+{driver}://{rest}", poolclass=NullPool)
    async with engine.connect() as connection:
        if scheme == "sqlite":
            await connection.exec_driver_sql(f"PRAGMA synchronous = {synchronous}")
            await connection.rollback()

        async def execute(statement: str, values: Values) -> None:
            await connection.execute(text(statement), {f"v{n}": value for n, value in enumerate(values)})

        yield Caller(
            connection, lambda: _begun(connection, scheme), connection.begin_nested, execute,
            lambda count: [f":v{n}" for n in range(count)],
        )  # fmt: skip
    await engine.dispose()


@asynccontextmanager
async def _begun(connection: AsyncConnection, scheme: str) -> AsyncIterator[None]:
    async with connection.begin():
        if scheme == "sqlite":  # a SAVEPOINT that came first would be the transaction
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield


@asynccontextmanager
async def _asyncpg_caller(url: str, synchronous: str) -> AsyncIterator[Caller]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        yield Caller(
            connection, connection.transaction, connection.transaction,
            lambda statement, values: connection.execute(statement, *values),
            lambda count: [f"${n + 1}" for n in range(count)],
        )  # fmt: skip
    finally:
        await connection.close()


@asynccontextmanager
async def _aiosqlite_caller(url: str, synchronous: str) -> AsyncIterator[Caller]:
    import aiosqlite

    async with aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None) as connection:
        await connection.execute(f"PRAGMA synchronous = {synchronous}")

        async def run(statement: str) -> None:
            await connection.execute(statement)

        yield Caller(
            connection, lambda: _between(run, "BEGIN IMMEDIATE", "COMMIT"),
            lambda: _between(run, "SAVEPOINT by_hand", "RELEASE SAVEPOINT by_hand"), connection.execute,
            lambda count: "?" * count,
        )  # fmt: skip


@asynccontextmanager
async def _asyncmy_caller(url: str, synchronous: str) -> AsyncIterator[Caller]:
    import asyncmy

    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=parts.password or "",
        database=parts.path.lstrip("/"), init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )  # fmt: skip
    async with connection.cursor() as cursor:

        async def run(statement: str) -> None:
            await cursor.execute(statement)

        yield Caller(
            connection, lambda: _between(run, "BEGIN", "COMMIT"),
            lambda: _between(run, "SAVEPOINT by_hand", "RELEASE SAVEPOINT by_hand"), cursor.execute,
            lambda count: ["%s"] * count,
        )  # fmt: skip
    connection.close()


@asynccontextmanager
async def _between(run: Callable[[str], Awaitable[None]], first: str, last: str) -> AsyncIterator[None]:
    await run(first)
    yield
    await run(last)


def _database(ox: Oxpull) -> tuple[str, str]:
    assert ox.settings.database is not None
    return ox.settings.database, ox.settings.synchronous


def _encoding(url: str) -> Callable[[Values], Values]:
    if url.startswith("postgresql"):
        return lambda row: row
    if url.startswith("sqlite"):
        from oxpull_async.benchmark.floors import sqlite

        return sqlite.encoded
    from oxpull_async.benchmark.floors import mysql

    return mysql.encoded


def _parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + PER_TRANSACTION] for start in range(0, len(items), PER_TRANSACTION)]
