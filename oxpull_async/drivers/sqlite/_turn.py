"""A job's turn on the connection, as the job sees it inside the connection's own thread."""

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


class Turn:
    """Statement by statement for one job, which may be called off between any two.

    SQLite's own busy handler is off, because nothing can interrupt it: what
    finds the file busy is tried again here, for ``patience`` seconds.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        is_called_off: Callable[[], bool],
        dismiss_impatient: Callable[[], None],
        *,
        patience: float,
        statement_seconds: float,
        in_transaction: bool,
    ) -> None:
        self.connection = connection
        self.is_called_off = is_called_off
        self.dismiss_impatient = dismiss_impatient
        """For a job that keeps its turn without using it: let those who won't wait any longer go."""
        self._patience = patience
        self._statement_seconds = statement_seconds
        self._statement_began = time.monotonic()
        self._in_transaction = in_transaction

    def execute(self, step: Step) -> Result:
        """Run one statement."""
        return self._patiently(lambda: executed(step, self.connection.cursor()))

    def commit(self) -> None:
        """Raises: LockNotAvailable where readers keep the file (under a rollback journal alone: WAL lets them)."""
        self._patiently(lambda: self.connection.execute("COMMIT"))
        self._in_transaction = False

    def must_stop(self) -> bool:
        """SQLite asks this in the middle of a long statement."""
        return self.is_called_off() or time.monotonic() - self._statement_began > self._statement_seconds

    def _patiently(self, run: Callable[[], R]) -> R:
        self._statement_began = time.monotonic()
        while True:
            self._check()
            try:
                return run()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() - self._statement_began > self._patience:
                    raise classify(error) from error
            pause()

    def _check(self) -> None:
        if self.is_called_off():
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


def executed(step: Step, cursor: sqlite3.Cursor) -> Result:
    """Run one statement, and fetch all of it: a cursor left open would keep the write lock."""
    text, names = step.statement.qmark
    if step.many is not None:
        cursor.executemany(text, [[row[name] for name in names] for row in step.many])
        return Result((), cursor.rowcount)
    cursor.execute(text, [step.values[name] for name in names])
    rows = cursor.fetchall()
    return Result(rows, len(rows) if cursor.description else max(cursor.rowcount, 0))
