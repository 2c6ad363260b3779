"""The connection as a job sees it, inside the connection's own thread."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from oxpull_async.drivers._procedure import Result, Step
from oxpull_async.drivers.sqlite.errors import classify, is_busy
from oxpull_async.exceptions import StoreError

R = TypeVar("R")

_RETRY_SECONDS = 0.001


class CalledOff(Exception):
    """Ends a job whose caller no longer waits. No procedure catches it."""


class Session:
    """Statement by statement for one job, which may be called off between any two.

    SQLite's own busy handler is off, because nothing can interrupt it: what
    finds the file busy is tried again here, for ``patience`` seconds.
    """

    def __init__(self, connection: sqlite3.Connection, patience: float, *, in_transaction: bool) -> None:
        self.connection = connection
        self.called_off = False
        self.statement_began: float | None = None
        """By the monotonic clock; None between statements."""
        self._patience = patience
        self._in_transaction = in_transaction

    def execute(self, step: Step) -> Result:
        """Run one statement, and fetch all of it: a cursor left open would keep the write lock."""
        text, names = step.statement.qmark
        if step.many is not None:
            rows = [[row[name] for name in names] for row in step.many]
            return self._patiently(lambda: Result((), self.connection.executemany(text, rows).rowcount))
        values = [step.values[name] for name in names]
        return self._patiently(lambda: _fetched(self.connection.execute(text, values)))

    def commit(self) -> None:
        """Raises: LockNotAvailable where readers keep the file (under a rollback journal alone: WAL lets them)."""
        self._patiently(lambda: self.connection.execute("COMMIT"))
        self._in_transaction = False

    def _patiently(self, run: Callable[[], R]) -> R:
        began = self.statement_began = time.monotonic()
        try:
            while True:
                self._check()
                try:
                    return run()
                except sqlite3.Error as error:
                    if not is_busy(error) or time.monotonic() - began > self._patience:
                        raise classify(error) from error
                pause()
        finally:
            self.statement_began = None

    def _check(self) -> None:
        if self.called_off:
            raise CalledOff
        if self._in_transaction and not self.connection.in_transaction:
            # After an interrupt or a full disk: the next statement would be a transaction of its own.
            raise StoreError("SQLite has rolled this transaction back")


def pause() -> None:
    """Between two looks at a busy file: at random, so that processes don't keep step."""
    time.sleep(random.uniform(0.1, 1) * _RETRY_SECONDS)


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if there is one. What can't be ended now is ended before the next BEGIN."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _fetched(cursor: sqlite3.Cursor) -> Result:
    rows = cursor.fetchall()
    return Result(rows, len(rows) if cursor.description else max(cursor.rowcount, 0))
