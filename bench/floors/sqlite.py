"""SQLite over aiosqlite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

import aiosqlite

from bench.floors import COLUMN_COUNT, COLUMNS, TABLES, OpenFloor, Values, task_rows

INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({', '.join('?' * COLUMN_COUNT)})"


def open_floor_with(synchronous: Literal["NORMAL", "FULL"]) -> OpenFloor:
    """The floor at one level of durability, which belongs to the connection."""
    return partial(open_floor, synchronous=synchronous)


@asynccontextmanager
async def open_floor(url: str, synchronous: Literal["NORMAL", "FULL"] = "FULL") -> AsyncIterator[SqliteFloor]:
    """One connection, whoever writes: SQLite has one writer, and a second connection would only wait for it."""
    async with aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None) as connection:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute(f"PRAGMA synchronous = {synchronous}")
        await connection.execute("PRAGMA busy_timeout = 5000")
        yield SqliteFloor(connection)


class SqliteFloor:
    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def empty(self) -> None:
        for table in TABLES:
            await self._connection.execute(f"DELETE FROM {table}")
        await self._connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def one_after_another(self, count: int) -> None:
        for row in task_rows(count):
            await self._connection.execute(INSERT, encoded(row))

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                await self._connection.execute(INSERT, encoded(row))

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        rows = [encoded(row) for row in task_rows(count)]
        await self._connection.execute("BEGIN IMMEDIATE")
        await self._connection.executemany(INSERT, rows)
        await self._connection.execute("COMMIT")


def encoded(row: Values) -> Values:
    """As the driver takes it."""
    return (row[0].hex, *row[1:-2], row[-2].strftime("%Y-%m-%d %H:%M:%S.%f"), row[-1])
