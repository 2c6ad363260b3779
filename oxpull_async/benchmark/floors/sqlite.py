"""SQLite over aiosqlite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiosqlite

from oxpull_async.benchmark.floors import CLAIMED_AT_ONCE, COLUMN_COUNT, COLUMNS, TABLES, TASK_PATH, Values, task_rows
from oxpull_async.drivers.sqlite.pool import database_path
from oxpull_async.settings import Settings

_INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({', '.join('?' * COLUMN_COUNT)})"  # noqa: S608
_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_CLAIM = f"""
UPDATE django_ox_oxtask
SET status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1, locked_by = 'floor',
    locked_at = {_NOW}, started_at = {_NOW}, lease_expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', '5 minutes')
WHERE id IN (
    SELECT id FROM django_ox_oxtask WHERE status = 'READY' AND task_path = '{TASK_PATH}'
    ORDER BY priority DESC, enqueued_at LIMIT {CLAIMED_AT_ONCE}
)
RETURNING id
"""  # noqa: S608
_SETTLE = f"""
UPDATE django_ox_oxtask
SET status = 'SUCCESSFUL', finished_at = {_NOW}, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each('[' || ? || ']')) AND status = 'RUNNING'
"""  # noqa: S608
_LEVELS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


@asynccontextmanager
async def open_floor(url: str, settings: Settings) -> AsyncIterator[SqliteFloor]:
    """One connection, whoever writes: SQLite has one writer, and a second connection would only wait for it."""
    async with aiosqlite.connect(database_path(url), isolation_level=None) as connection:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        await connection.execute("PRAGMA busy_timeout = 5000")
        yield SqliteFloor(connection)


class SqliteFloor:
    """One connection, and bare statements."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def facts(self) -> Mapping[str, str]:
        ((journal,),) = await self._connection.execute_fetchall("PRAGMA journal_mode")
        ((level,),) = await self._connection.execute_fetchall("PRAGMA synchronous")
        return {"journal_mode": str(journal), "synchronous": _LEVELS.get(level, str(level))}

    async def ping(self) -> None:
        await self._connection.execute_fetchall("SELECT 1")

    async def empty(self) -> None:
        for table in TABLES:
            await self._connection.execute(f"DELETE FROM {table}")  # noqa: S608
        await self._connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def one_after_another(self, count: int) -> None:
        for row in task_rows(count):
            await self._connection.execute(_INSERT, encoded(row))

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                await self._connection.execute(_INSERT, encoded(row))

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        rows = [encoded(row) for row in task_rows(count)]
        await self._connection.execute("BEGIN IMMEDIATE")
        await self._connection.executemany(_INSERT, rows)
        await self._connection.execute("COMMIT")

    async def drain(self) -> None:
        while claimed := await self._connection.execute_fetchall(_CLAIM):
            await self._connection.execute(_SETTLE, (",".join(f'"{row[0]}"' for row in claimed),))


def encoded(row: Values) -> Values:
    """As the driver takes it."""
    return (row[0].hex, *row[1:-2], row[-2].strftime("%Y-%m-%d %H:%M:%S.%f"), row[-1])
