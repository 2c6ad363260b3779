"""Creates the tables, beside other processes doing the same and under live traffic."""

from __future__ import annotations

import sqlite3

from oxpull_async.drivers._migrations import SchemaStatement, SchemaStep, load_steps


def schema(*, lean: bool) -> list[SchemaStep]:
    """All steps in their order, for a database without tables."""
    return load_steps(__package__, lean=lean)


def migrate(connection: sqlite3.Connection, *, lean: bool) -> list[str]:
    """Apply the missing steps within the transaction that surrounds this; returns their names.

    The file's write lock, which the transaction holds, keeps other processes out until all steps are there.
    """
    ledger, *steps = load_steps(__package__, lean=lean)
    _run(connection, ledger, set())
    done = {row[0] for row in connection.execute("SELECT name FROM oxpull_async_migration").fetchall()}
    pending = [step for step in steps if step.name not in done]
    made: set[str] = set()
    for step in pending:
        _run(connection, step, made)
        _record(connection, step.name)
    return [step.name for step in pending]


def _run(connection: sqlite3.Connection, step: SchemaStep, made: set[str]) -> None:
    for statement in step.statements:
        if _applies(connection, statement, made):
            connection.execute(statement.text).fetchall()
            if statement.unless_table:
                made.add(statement.unless_table)


def _applies(connection: sqlite3.Connection, statement: SchemaStatement, made: set[str]) -> bool:
    if statement.only_with_new_table:
        return statement.only_with_new_table in made
    if statement.unless_table:
        found = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (statement.unless_table,)
        )
        return not found.fetchall()
    return True


def _record(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(
        "INSERT INTO oxpull_async_migration (name, applied_at) "
        "VALUES (?, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')",
        (name,),
    )
