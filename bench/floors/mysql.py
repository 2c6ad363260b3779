"""MariaDB and MySQL over asyncmy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncmy

from bench.floors import COLUMN_COUNT, COLUMNS, POOL_SIZE, TABLES, Values, task_rows

_CHUNK = 1000
INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({', '.join(['%s'] * COLUMN_COUNT)})"


@asynccontextmanager
async def open_floor(url: str) -> AsyncIterator[MysqlFloor]:
    """A pool in autocommit, where an INSERT is a transaction without further statements."""
    parts = urlsplit(url)
    pool = await asyncmy.create_pool(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.lstrip("/"),
        minsize=POOL_SIZE,
        maxsize=POOL_SIZE,
        autocommit=True,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
    try:
        yield MysqlFloor(pool)
    finally:
        pool.close()
        await pool.wait_closed()


class MysqlFloor:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def empty(self) -> None:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute("SET foreign_key_checks = 0")
            for table in TABLES:
                await cursor.execute(f"TRUNCATE {table}")
            await cursor.execute("SET foreign_key_checks = 1")

    async def one_after_another(self, count: int) -> None:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            for row in task_rows(count):
                await cursor.execute(INSERT, encoded(row))

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                async with self._pool.acquire() as connection, connection.cursor() as cursor:
                    await cursor.execute(INSERT, encoded(row))

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        """`executemany` writes many rows into one statement; the transaction holds the statements together."""
        rows = [encoded(row) for row in task_rows(count)]
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await connection.begin()
            for start in range(0, count, _CHUNK):
                await cursor.executemany(INSERT, rows[start : start + _CHUNK])
            await connection.commit()


def encoded(row: Values) -> Values:
    """As the driver takes it."""
    return (row[0].hex, *row[1:-2], row[-2].replace(tzinfo=None), row[-1])
