"""Creates the tables, beside other processes doing the same and under live traffic."""

from __future__ import annotations

import re
import time
from typing import Any

import anyio

from oxpull_async._shield import shielded
from oxpull_async.drivers._migrations import SchemaStatement, SchemaStep, filled, load_steps
from oxpull_async.drivers._procedure import Row
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql._connection import Connection
from oxpull_async.exceptions import LockNotAvailable, StoreError

STATEMENT_SECONDS = 24 * 3600.0
"""How long a statement of a migration may take: an index of a large table may take hours."""

_SQL = load_statements(__package__, "migrations.sql")
_LOCK_SECONDS = 300.0
_POLL_SECONDS = 0.05
_CLEANUP_SECONDS = 2.0
_UUID_SINCE = (10, 7)
_UUID = "{uuid}"


def schema(*, lean: bool, uuid_type: str = "char(32)") -> list[SchemaStep]:
    """All steps in their order, for a database without tables. Ids are ``char(32)``, ``uuid`` on MariaDB from 10.7."""
    return filled(load_steps(__package__, lean=lean), lambda text: text.replace(_UUID, uuid_type))


async def migrate(connection: Connection, *, lean: bool) -> list[str]:
    """Apply the missing steps over a connection of its own; returns their names.

    Every statement commits at once, so a step that was cut off is begun again from its top.
    """
    await _lock(connection)
    try:
        return await _apply(connection, lean=lean)
    finally:
        await _unlock(connection)


async def _lock(connection: Connection) -> None:
    """Poll, so that a waiter can be cancelled."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while (await _rows(connection, _SQL["take_lock"]))[0][0] != 1:
        if time.monotonic() > deadline:
            raise LockNotAvailable(f"another process has been migrating for more than {_LOCK_SECONDS:g} s")
        await anyio.sleep(_POLL_SECONDS)


async def _unlock(connection: Connection) -> None:
    try:
        await shielded(_rows(connection, _SQL["release_lock"]), within=_CLEANUP_SECONDS)
    except (TimeoutError, StoreError):
        connection.cut()  # ends the session, and its lock with it


async def _apply(connection: Connection, *, lean: bool) -> list[str]:
    """Each step is listed as soon as it's done."""
    ledger, *steps = load_steps(__package__, lean=lean)
    uuid_type = await _uuid_type(connection)
    made: set[str] = set()
    await _run(connection, ledger, made, uuid_type)
    done = {row[0] for row in await _rows(connection, _SQL["read_ledger"])}
    pending = [step for step in steps if step.name not in done]
    for step in pending:
        await _run(connection, step, made, uuid_type)
        await _rows(connection, _SQL["write_ledger"], name=step.name)
    return [step.name for step in pending]


async def _uuid_type(connection: Connection) -> str:
    """The type of ids here: as an existing table has them, collation included, else the server's best."""
    existing = await _rows(connection, _SQL["read_id_column"])
    if existing:
        column_type, character_set, collation = existing[0]
        if character_set is None:
            return str(column_type)
        return f"{column_type} CHARACTER SET {character_set} COLLATE {collation}"
    version = str((await _rows(connection, _SQL["read_version"]))[0][0])
    major, minor = re.findall(r"\d+", version)[:2]
    return "uuid" if "mariadb" in version.lower() and (int(major), int(minor)) >= _UUID_SINCE else "char(32)"


async def _run(connection: Connection, step: SchemaStep, made: set[str], uuid_type: str) -> None:
    for statement in step.statements:
        if await _applies(connection, statement, made):
            await connection.command(statement.text.replace(_UUID, uuid_type))
            if statement.unless_table:
                made.add(statement.unless_table)


async def _applies(connection: Connection, statement: SchemaStatement, made: set[str]) -> bool:
    if statement.only_with_new_table:
        return statement.only_with_new_table in made
    if statement.unless_table:
        return not await _rows(connection, _SQL["find_table"], table_name=statement.unless_table)
    if statement.unless_index:
        return not await _has_index(connection, *statement.unless_index)
    if statement.if_index:
        return await _has_index(connection, *statement.if_index)
    return True


async def _has_index(connection: Connection, table: str, index: str) -> bool:
    return bool(await _rows(connection, _SQL["find_index"], table_name=table, index_name=index))


async def _rows(connection: Connection, statement: Statement, **values: Any) -> list[Row]:
    return list((await connection.execute(statement(**values))).rows)
