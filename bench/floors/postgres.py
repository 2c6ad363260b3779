"""PostgreSQL over asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from bench.floors import COLUMN_COUNT, COLUMNS, POOL_SIZE, TABLES, task_rows

_TYPES = (
    "uuid", "varchar", "text", "text", "varchar", "smallint", "boolean", "varchar", "varchar",
    "smallint", "smallint", "text", "text", "timestamptz", "bigint",
)  # fmt: skip
_JSON = {"args", "kwargs", "errors", "worker_ids"}

_MARKS = ", ".join(f"${number + 1}" for number in range(COLUMN_COUNT))
_ARRAYS = ", ".join(f"${number + 1}::{type_}[]" for number, type_ in enumerate(_TYPES))
_SELECTED = ", ".join(f"{name}::jsonb" if name in _JSON else name for name in COLUMNS.split(", "))

INSERT = f"INSERT INTO django_ox_oxtask ({COLUMNS}) VALUES ({_MARKS})"
INSERT_BULK = f"INSERT INTO django_ox_oxtask ({COLUMNS}) SELECT {_SELECTED} FROM unnest({_ARRAYS}) AS input ({COLUMNS})"


@asynccontextmanager
async def open_floor(url: str) -> AsyncIterator[PostgresFloor]:
    """A pool whose connections go back without a reset query, which would cost more than an INSERT."""
    async with asyncpg.create_pool(url, min_size=POOL_SIZE, max_size=POOL_SIZE, reset=_nothing) as pool:
        yield PostgresFloor(pool)


class PostgresFloor:
    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def empty(self) -> None:
        await self._pool.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")

    async def one_after_another(self, count: int) -> None:
        async with self._pool.acquire() as connection:
            for row in task_rows(count):
                await connection.execute(INSERT, *row)

    async def at_once(self, count: int, coroutines: int) -> None:
        rows = task_rows(count)

        async def insert() -> None:
            for row in rows:
                async with self._pool.acquire() as connection:
                    await connection.execute(INSERT, *row)

        await asyncio.gather(*(insert() for _ in range(coroutines)))

    async def in_bulk(self, count: int) -> None:
        columns = [list(column) for column in zip(*task_rows(count), strict=True)]
        await self._pool.execute(INSERT_BULK, *columns)


async def _nothing(connection: Any) -> None:
    """Nothing that runs here leaves a trace in the session."""
