"""Classifies asyncpg's errors (and those of both psycopgs, by SQLSTATE) as the library's own."""

from __future__ import annotations

from typing import Any

import asyncpg

from oxpull_async.exceptions import (
    ConnectionLost,
    DeadlockDetected,
    LockNotAvailable,
    OxpullError,
    SavepointMissing,
    SerializationFailure,
    StatementTimeout,
    StoreError,
    UniqueViolation,
    WrongDatabase,
)

_BY_SQLSTATE: dict[str, type[StoreError]] = {
    "40001": SerializationFailure,
    "40P01": DeadlockDetected,
    "55P03": LockNotAvailable,
    "57014": StatementTimeout,
    "25P01": SavepointMissing,
    "3B001": SavepointMissing,
}
# Too many clients, starting up or shutting down, out of memory: the same work may succeed later.
_TRANSIENT_SQLSTATES = frozenset({"53300", "57P01", "57P02", "57P03", "53200", "55006", "0A000"})
_MISSING = frozenset({"42P01", "42703", "3F000"})


DRIVER_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""Everything that asyncpg raises; its time-outs are the builtin TimeoutError, an OSError."""


def is_gone(connection: Any) -> bool:
    """Whether the connection is closed; a pool's proxy from which a lost one was taken away says so by an error."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def classify(error: BaseException, *, closed: bool = False) -> OxpullError:
    """The library's error for a driver's.

    ``closed`` says that the connection is closed: then whatever was raised
    means that it was lost (asyncpg raises InternalClientError at that instant).
    """
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg2 has the latter
    if isinstance(sqlstate, str):
        return _by_sqlstate(error, sqlstate)
    if closed:
        return ConnectionLost(f"the connection to PostgreSQL was lost: {_words(error)}")
    if isinstance(error, TimeoutError):
        return StatementTimeout("PostgreSQL did not answer in time")
    if isinstance(error, OSError):
        return ConnectionLost(f"PostgreSQL can't be reached: {_words(error)}")
    return StoreError(f"the connection can't be used: {_words(error)}")


def _by_sqlstate(error: BaseException, sqlstate: str) -> OxpullError:
    message = f"{_words(error)} (SQLSTATE {sqlstate})"
    if sqlstate == "23505":
        return UniqueViolation(message, code=sqlstate, table=_table(error))
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate](message, code=sqlstate)
    if sqlstate.startswith(("08", "57P")):
        return ConnectionLost(message, code=sqlstate)
    if sqlstate in _MISSING:
        return WrongDatabase(
            f"a table of the queue is missing here: {message}. "
            "Run `await ox.migrate()` or `oxpull-async migrate` against this database first."
        )
    found = StoreError(message, code=sqlstate)
    if sqlstate in _TRANSIENT_SQLSTATES:
        found.transient = True
    return found


def _table(error: BaseException) -> str | None:
    diagnostics = getattr(error, "diag", error)
    table: str | None = getattr(diagnostics, "table_name", None)
    return table


def _words(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
