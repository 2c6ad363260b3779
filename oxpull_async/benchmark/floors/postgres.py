"""PostgreSQL over asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import asyncpg

from oxpull_async.benchmark.floors import CLAIMED_AT_ONCE, COLUMN_COUNT, COLUMNS, TABLES, TASK_PATH, task_rows
from oxpull_async.exceptions import WrongDatabase
from oxpull_async.settings import Settings

_TYPES: Final = (
    "uuid", "varchar", "text", "text", "varchar", "smallint", "boolean", "varchar", "varchar",
    "smallint", "smallint", "text", "text", "timestamptz", "bigint",
)  # fmt: skip
_JSON: Final = {"args", "kwargs", "errors", "worker_ids"}

_MARKS = ", ".join(f"${number + 1}" for number in range(COLUMN_COUNT))
_ARRAYS = ", ".join(f"${number + 1}::{type_}[]" for number, type_ in enumerate(_TYPES))
_SELECTED = ", ".join(f"{name}::jsonb" if name in _JSON else name for name in COLUMNS.split(", "))

_INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({_MARKS})"  # noqa: S608 - our own words
_INSERT_BULK = (
    f"INSERT INTO django_ox_oxtask ({COLUMNS}) SELECT {_SELECTED} "  # noqa: S608
    f"FROM unnest({_ARRAYS}) AS input ({COLUMNS})"
)
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM django_ox_oxtask WHERE status = 'READY' AND task_path = '{TASK_PATH}'
    ORDER BY priority DESC, enqueued_at LIMIT {CLAIMED_AT_ONCE} FOR UPDATE SKIP LOCKED
)
UPDATE django_ox_oxtask AS task
SET status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1, locked_by = 'floor',
    locked_at = now(), started_at = now(), lease_expires_at = now() + interval '5 minutes'
FROM due WHERE task.id = due.id
RETURNING task.id
"""  # noqa: S608
_SETTLE = """
UPDATE django_ox_oxtask
SET status = 'SUCCESSFUL', finished_at = now(), locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = ANY($1) AND status = 'RUNNING'
"""
_FACTS = """
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')
   OR (name = 'synchronous_standby_names' AND setting <> '')
ORDER BY name
"""


@asynccontextmanager
async def open_floor(url: str, settings: Settings) -> AsyncIterator[PostgresFloor]:
    """A pool whose connections go back without a reset query, which would cost more than an INSERT."""
    async with asyncpg.create_pool(
        url,
        min_size=settings.pool_size,
        max_size=settings.pool_size,
        timeout=settings.connect_timeout,
        init=_refusing_elsewhere(url),
        reset=_nothing,
    ) as pool:
        yield PostgresFloor(pool)


class PostgresFloor:
    """A pool of connections, and bare statements."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def facts(self) -> Mapping[str, str]:
        return {row["name"]: row["setting"] for row in await self._pool.fetch(_FACTS)}

    async def ping(self) -> None:
        await self._pool.fetchval("SELECT 1")

    async def empty(self) -> None:
        await self._pool.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")

    async def one_after_another(self, count: int) -> None:
        async with self._pool.acquire() as connection:
            for row in task_rows(count):
                await connection.execute(_INSERT, *row)

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                async with self._pool.acquire() as connection:
                    await connection.execute(_INSERT, *row)

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        columns = [list(column) for column in zip(*task_rows(count), strict=True)]
        await self._pool.execute(_INSERT_BULK, *columns)

    async def drain(self) -> None:
        async with self._pool.acquire() as connection:
            while claimed := await connection.fetch(_CLAIM):
                await connection.execute(_SETTLE, [row["id"] for row in claimed])


def _refusing_elsewhere(url: str) -> Callable[[Any], Awaitable[None]]:
    """Whoever is told to work in a schema works there or not at all: rows are deleted by the table."""
    wanted = parse_qs(urlsplit(url).query).get("search_path")

    async def look(connection: Any) -> None:
        found = await connection.fetchval("SELECT current_schema()")
        if wanted is not None and found != wanted[-1]:
            raise WrongDatabase(
                f"a connection to PostgreSQL was asked for the schema {wanted[-1]}, and is in {found}: something "
                "between here and the server, such as a pooler, ignores search_path. Give the URL of the server itself."
            )

    return look


async def _nothing(connection: Any) -> None:
    """Nothing that runs here leaves a trace in the session."""
