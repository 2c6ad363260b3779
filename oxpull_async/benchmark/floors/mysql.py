"""MariaDB and MySQL over asyncmy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncmy

from oxpull_async.benchmark.floors import CLAIMED_AT_ONCE, COLUMN_COUNT, COLUMNS, TABLES, TASK_PATH, Values, task_rows
from oxpull_async.drivers.mysql._address import connect_arguments
from oxpull_async.settings import Settings

_CHUNK: Final = 1000
_INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({', '.join(['%s'] * COLUMN_COUNT)})"  # noqa: S608
_LOOK = f"""
SELECT id FROM django_ox_oxtask WHERE status = 'READY' AND task_path = '{TASK_PATH}'
ORDER BY priority DESC, enqueued_at LIMIT {CLAIMED_AT_ONCE} FOR UPDATE SKIP LOCKED
"""  # noqa: S608
_CLAIM = """
UPDATE django_ox_oxtask
SET status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1, locked_by = 'floor',
    locked_at = UTC_TIMESTAMP(6), started_at = UTC_TIMESTAMP(6), lease_expires_at = UTC_TIMESTAMP(6) + INTERVAL 5 MINUTE
WHERE id IN %s
"""
_SETTLE = """
UPDATE django_ox_oxtask
SET status = 'SUCCESSFUL', finished_at = UTC_TIMESTAMP(6), locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN %s AND status = 'RUNNING'
"""
_FACTS = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'innodb_doublewrite')"
)


@asynccontextmanager
async def open_floor(url: str, settings: Settings) -> AsyncIterator[MysqlFloor]:
    """A pool in autocommit, where an INSERT is a transaction without further statements."""
    pool = await asyncmy.create_pool(
        **connect_arguments(url),
        minsize=settings.pool_size,
        maxsize=settings.pool_size,
        connect_timeout=settings.connect_timeout,
        autocommit=True,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
    try:
        yield MysqlFloor(pool)
    finally:
        pool.terminate()
        await pool.wait_closed()


class MysqlFloor:
    """A pool of connections, and bare statements."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def facts(self) -> Mapping[str, str]:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(_FACTS)
            return {str(name): str(value) for name, value in await cursor.fetchall()}

    async def ping(self) -> None:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute("SELECT 1")

    async def empty(self) -> None:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute("SET foreign_key_checks = 0")
            for table in TABLES:
                await cursor.execute(f"TRUNCATE {table}")
            await cursor.execute("SET foreign_key_checks = 1")

    async def one_after_another(self, count: int) -> None:
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            for row in task_rows(count):
                await cursor.execute(_INSERT, encoded(row))

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                async with self._pool.acquire() as connection, connection.cursor() as cursor:
                    await cursor.execute(_INSERT, encoded(row))

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        """`executemany` writes many rows into one statement; the transaction holds the statements together."""
        rows = [encoded(row) for row in task_rows(count)]
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            await connection.begin()
            for start in range(0, count, _CHUNK):
                await cursor.executemany(_INSERT, rows[start : start + _CHUNK])
            await connection.commit()

    async def drain(self) -> None:
        """A row is locked by a look and claimed by its id: an UPDATE of so many in their order would read them all."""
        async with self._pool.acquire() as connection, connection.cursor() as cursor:
            while True:
                await connection.begin()
                await cursor.execute(_LOOK)
                ids = tuple(str(row[0]) for row in await cursor.fetchall())
                if not ids:
                    await connection.rollback()
                    return
                await cursor.execute(_CLAIM, (ids,))
                await connection.commit()
                await cursor.execute(_SETTLE, (ids,))


def encoded(row: Values) -> Values:
    """As the driver takes it."""
    return (row[0].hex, *row[1:-2], row[-2].replace(tzinfo=None), row[-1])
