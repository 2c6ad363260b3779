"""Creates the tables, beside other processes doing the same and under live traffic."""

from __future__ import annotations

import time
from typing import Any

import anyio

from oxpull_async.drivers._migrations import SchemaStatement, SchemaStep, load_steps
from oxpull_async.exceptions import LockNotAvailable

_LOCK = 0x6F7870756C6C  # "oxpull" in ASCII: one number for every version of this library
_LOCK_SECONDS = 300.0
_POLL_SECONDS = 0.05


def schema(*, lean: bool) -> list[SchemaStep]:
    """All steps in their order, for a database without tables."""
    return load_steps(__package__, lean=lean)


async def migrate(connection: Any, *, lean: bool) -> list[str]:
    """Apply the missing steps over a connection of its own; returns their names."""
    await _lock(connection)
    try:
        return await _apply(connection, lean=lean)
    finally:
        with anyio.move_on_after(2, shield=True):
            await connection.fetchval("SELECT pg_advisory_unlock($1)", _LOCK)


async def _lock(connection: Any) -> None:
    """Poll: a waiter that blocks would hold a snapshot, and a concurrent index build waits for those."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        if time.monotonic() > deadline:
            raise LockNotAvailable(f"another process has been migrating for more than {_LOCK_SECONDS:g} s")
        await anyio.sleep(_POLL_SECONDS)


async def _apply(connection: Any, *, lean: bool) -> list[str]:
    """Everything that may share a transaction does: an interrupted run leaves all of it undone.

    A step whose index is built outside of it is listed only after the build.
    """
    ledger, *steps = load_steps(__package__, lean=lean)
    async with connection.transaction():
        await _run(connection, ledger, set())
        done = {row[0] for row in await connection.fetch("SELECT name FROM oxpull_async_migration")}
        pending = [step for step in steps if step.name not in done]
        made: set[str] = set()
        for step in pending:
            await _run(connection, step, made)
            if not _outside(step):
                await _record(connection, step.name)
    for step in pending:
        for statement in _outside(step):
            await _drop_invalid_indexes(connection)
            await connection.execute(statement.text)
        await _record(connection, step.name)
    return [step.name for step in pending]


async def _run(connection: Any, step: SchemaStep, made: set[str]) -> None:
    for statement in step.statements:
        if not statement.outside_transaction and await _applies(connection, statement, made):
            await connection.execute(statement.text)
            if statement.unless_table:
                made.add(statement.unless_table)


def _outside(step: SchemaStep) -> list[SchemaStatement]:
    return [statement for statement in step.statements if statement.outside_transaction]


async def _applies(connection: Any, statement: SchemaStatement, made: set[str]) -> bool:
    if statement.only_with_new_table:
        return statement.only_with_new_table in made
    if statement.unless_table:
        return await connection.fetchval("SELECT to_regclass($1)", statement.unless_table) is None
    return True


async def _drop_invalid_indexes(connection: Any) -> None:
    """An interrupted concurrent build leaves an index that never serves, under the name we want."""
    rows = await connection.fetch(
        "SELECT quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE NOT i.indisvalid AND c.relname LIKE 'oxpull\\_async\\_%' AND pg_table_is_visible(c.oid)"
    )
    for row in rows:
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {row[0]}")


async def _record(connection: Any, name: str) -> None:
    await connection.execute(
        "INSERT INTO oxpull_async_migration (name, applied_at) VALUES ($1, STATEMENT_TIMESTAMP()) "
        "ON CONFLICT (name) DO NOTHING",
        name,
    )
