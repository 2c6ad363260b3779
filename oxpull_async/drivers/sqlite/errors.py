"""Classifies sqlite3's errors, by their extended result code, as the library's own."""

from __future__ import annotations

import re
import sqlite3

from oxpull_async.exceptions import (
    ConnectionLost,
    LockNotAvailable,
    OxpullError,
    SavepointMissing,
    SerializationFailure,
    StatementTimeout,
    StoreError,
    UniqueViolation,
    WrongDatabase,
)

_UNIQUE = frozenset({sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE})
# The low byte of an extended code is its primary code. PROTOCOL: too many connections race for the WAL's locks.
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_BY_PRIMARY_CODE: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: LockNotAvailable,
    sqlite3.SQLITE_LOCKED: LockNotAvailable,
    sqlite3.SQLITE_PROTOCOL: LockNotAvailable,
    sqlite3.SQLITE_INTERRUPT: StatementTimeout,
    sqlite3.SQLITE_CANTOPEN: ConnectionLost,
}
_WORDS: dict[int, str] = {
    sqlite3.SQLITE_BUSY: "another connection is using the database file",
    sqlite3.SQLITE_LOCKED: "another connection of this process is using the table",
    sqlite3.SQLITE_PROTOCOL: "too many connections race for the database file",
    sqlite3.SQLITE_INTERRUPT: "the statement was stopped, because it ran too long or was cancelled",
    sqlite3.SQLITE_CANTOPEN: "the database file can't be opened",
    sqlite3.SQLITE_READONLY: "the database file, or its folder, can't be written",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
}
_MISSING = ("no such table", "no such column", "no such index", "has no column named")
_CLOSED = ("no active connection", "Connection closed", "Cannot operate on a closed database")

DRIVER_ERRORS: tuple[type[Exception], ...] = (sqlite3.Error, ValueError)
"""Everything that aiosqlite raises; a connection that is closed there is a ValueError."""


def classify(error: BaseException, *, closed: bool = False) -> OxpullError:
    """The library's error for a driver's.

    ``closed`` says that the connection is closed: then whatever was raised means that it was lost.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _by_code(error, code)
    if closed or str(error).startswith(_CLOSED):
        return ConnectionLost(f"the connection to SQLite is closed: {_words(error)}")
    return StoreError(f"the connection can't be used: {_words(error)}")


def is_busy(error: BaseException) -> bool:
    """Whether the same statement may succeed in a moment, when others have let go of the file.

    Not for a snapshot that others have left behind: only a new transaction helps there.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _BUSY and code != sqlite3.SQLITE_BUSY_SNAPSHOT


def _by_code(error: BaseException, code: int) -> OxpullError:
    message = f"{_words(error)} ({getattr(error, 'sqlite_errorname', 'SQLite')} {code})"
    if code in _UNIQUE:
        return UniqueViolation(message, code=code, table=_table(error))
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return SerializationFailure(f"others have written since this transaction first read: {message}", code=code)
    if code == sqlite3.SQLITE_NOTADB:
        return WrongDatabase(f"the file is no SQLite database: {message}")
    if "no such savepoint" in message:
        return SavepointMissing(message, code=code)
    if any(words in message for words in _MISSING):
        return WrongDatabase(
            f"a table of the queue is missing here: {message}. "
            "Run `await ox.migrate()` or `oxpull-async migrate` against this database first."
        )
    primary = code & 0xFF
    words = _WORDS.get(primary, "SQLite refused the statement")
    found = _BY_PRIMARY_CODE.get(primary, StoreError)(f"{words}: {message}", code=code)
    if primary == sqlite3.SQLITE_FULL:
        found.transient = True
    return found


def _table(error: BaseException) -> str | None:
    found = re.search(r"failed: (\w+)\.", str(error))
    return found[1] if found else None


def _words(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
