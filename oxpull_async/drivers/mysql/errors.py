"""Classifies the errors of asyncmy (and aiomysql, PyMySQL), by their number, as the library's own."""

from __future__ import annotations

import re

import asyncmy.errors

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

DRIVER_ERRORS: tuple[type[Exception], ...] = (asyncmy.errors.MySQLError, OSError)
"""Everything that asyncmy raises, and the time-outs around it: the builtin TimeoutError is an OSError."""

NOT_SENT = frozenset({0, 2006})
"""Numbers of a ``ConnectionLost`` that was noticed before anything was written to the socket."""

PACKET_TOO_LARGE = 1153

_BY_NUMBER: dict[int, type[StoreError]] = {
    1205: LockNotAvailable,  # also MariaDB's NOWAIT
    3572: LockNotAvailable,  # MySQL's NOWAIT
    1213: DeadlockDetected,
    3101: DeadlockDetected,  # group replication: lost to another member at the commit, which has undone it
    1020: SerializationFailure,  # MariaDB with innodb_snapshot_isolation
    1969: StatementTimeout,  # MariaDB's max_statement_time
    3024: StatementTimeout,  # MySQL's max_execution_time
    1317: StatementTimeout,  # KILL QUERY
}
# The client's own numbers; then too many connections, shutting down, killed, broken off, idle for too long.
_LOST = frozenset({0, 2002, 2003, 2006, 2013, 2014, 2055})
_LOST_BY_SERVER = frozenset({1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 3169, 4031})
_DUPLICATE = frozenset({1062, 1586})
_MISSING = frozenset({1146, 1054, 1176})  # a table, a column, an index
_NOT_THERE = 1305  # a savepoint, or a function
_NO_DATABASE = 1049
_REFUSED = frozenset({1044, 1045, 1698})
_REACH = "Does it run, and where the database URL says?"
READ_ONLY = frozenset({1290, 1836})
"""Such as a primary that has been replaced."""
# A full disk, out of memory or of locks, a Galera node that isn't ready, a server that is read-only for now: the same
# work may succeed later.
_TRANSIENT = frozenset({1021, 1037, 1041, 1047, 1114, 1206, 1226, 1637, *READ_ONLY})

_KEY = re.compile(r"for key '(?:([^'.]+)\.)?([^']+)'")
_TABLE_BY_KEY = {
    "ox_tick_uniq": "django_ox_oxscheduletick",
    "oxpull_batch_member_uniq": "oxpull_oxpullbatchmember",
}


def classify(error: BaseException) -> OxpullError:
    """The library's error for a driver's.

    Classes say nothing here: only the number does, and a client-side error
    has none, or a text in its place.
    """
    if isinstance(error, TimeoutError):
        return StatementTimeout("the MySQL server did not answer in time")
    if isinstance(error, OSError):
        return ConnectionLost(f"the MySQL server can't be reached: {_words(error)}. {_REACH}")
    number = error.args[0] if error.args else None
    if not isinstance(number, int):
        return ConnectionLost(f"the connection to the MySQL server can't be used any more: {_words(error)}")
    return _by_number(error, number)


def _by_number(error: BaseException, number: int) -> OxpullError:
    message = f"{_words(error)} (error {number})"
    if number in _DUPLICATE:
        return UniqueViolation(message, code=number, table=_table(message))
    if number == _NOT_THERE and "SAVEPOINT" in message:
        return SavepointMissing(message, code=number)
    if number in _BY_NUMBER:
        return _BY_NUMBER[number](message, code=number)
    if number in _LOST or number in _LOST_BY_SERVER:
        return ConnectionLost(message, code=number)
    if number == _NO_DATABASE:
        return WrongDatabase(f"{message}. Create the database first.")
    if number in _REFUSED:
        return StoreError(f"{message}. Check the user and the password in the database URL.", code=number)
    if number in _MISSING:
        return WrongDatabase(
            f"a table of the queue is missing here: {message}. "
            "Run `await ox.migrate()` or `oxpull-async migrate` against this database first."
        )
    found = StoreError(message, code=number)
    if number in _TRANSIENT:
        found.transient = True
    return found


def _table(message: str) -> str | None:
    """MySQL names the table with the key; MariaDB the key alone, and every primary key is PRIMARY."""
    match = _KEY.search(message)
    if match is None:
        return None
    return match[1] or _TABLE_BY_KEY.get(match[2])


def _words(error: BaseException) -> str:
    text = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], str) else str(error)
    return text.strip() or type(error).__name__
