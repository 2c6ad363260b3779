"""Classifies asyncpg's errors (and those of both psycopgs, by SQLSTATE) as the library's own."""

from __future__ import annotations

from typing import Any

import asyncpg

from oxpull_async.drivers._addresses import ESCAPES
from oxpull_async.exceptions import (
    ConnectionLost,
    DeadlockDetected,
    InvalidSettings,
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
READ_ONLY = "25006"
"""Also what a standby says, such as a primary that has been replaced."""
# A full disk, out of memory, a server that is read-only for now: the same work may succeed later.
_TRANSIENT_SQLSTATES = frozenset({"53100", "53200", "53400", "55006", "0A000", READ_ONLY})
# Shutting down, starting up, too many clients, a transaction that idled or lasted for too long: the server hangs up.
_LOST = ("08", "57P", "53300", "25P03", "25P04")
_MISSING = frozenset({"42P01", "42703", "3F000"})
_NO_DATABASE = "3D000"
_REFUSED = frozenset({"28000", "28P01"})
_REACH = "Does it run, and where the database URL says?"


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
        return ConnectionLost(f"PostgreSQL can't be reached: {_words(error)}. {_REACH}")
    return StoreError(f"the connection can't be used: {_words(error)}")


def unreadable(error: ValueError) -> InvalidSettings:
    """What is wrong with a database URL. Python's own words for a port that is no number may hold a password's end."""
    if isinstance(error, asyncpg.ClientConfigurationError):
        return InvalidSettings(f"the database URL can't be used: {_words(error)}")
    return InvalidSettings(f"the database URL can't be read, most likely its port; {ESCAPES}")


def _by_sqlstate(error: BaseException, sqlstate: str) -> OxpullError:
    message = f"{_words(error)} (SQLSTATE {sqlstate})"
    if sqlstate == "23505":
        return UniqueViolation(message, code=sqlstate, table=_table(error))
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate](message, code=sqlstate)
    if sqlstate.startswith(_LOST):
        return ConnectionLost(message, code=sqlstate)
    if sqlstate == _NO_DATABASE:
        return WrongDatabase(f"{message}. Create the database first.")
    if sqlstate in _REFUSED:
        return StoreError(f"{message}. Check the user and the password in the database URL.", code=sqlstate)
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
