"""One procedure on a Django connection, inside of its thread."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Generic, TypeVar

from django.db import Error, connections
from django.db.transaction import TransactionManagementError

from oxpull_async.drivers._procedure import Procedure, Result, Row, Step, run_sync
from oxpull_async.drivers._savepoints import SavepointDeed, SavepointStatement, savepoint
from oxpull_async.drivers._statements import Statement
from oxpull_async.exceptions import (
    ConnectionLost,
    OxpullError,
    StoreError,
    TransactionRequired,
    TransactionRolledBack,
)

T = TypeVar("T")


class CalledOff(StoreError):
    """Ends a visit whose caller no longer waits, after the procedure has put things right as after any error."""


class Visit(Generic[T]):
    """Runs the procedure; if that ends by an error, none of the savepoints that it has opened is left."""

    def __init__(self, using: str, engine: str, procedure: Procedure[T]) -> None:
        self._using = using
        self._engine = engine
        self._procedure = procedure
        self._is_called_off = False
        self._open: list[str] = []
        self._cursor: Any = None
        self._wrapper: Any = None

    def call_off(self) -> None:
        """From another thread: end before the next statement."""
        self._is_called_off = True

    def make(self) -> T:
        """Raises: TransactionRequired before any SQL, StoreError, TransactionRolledBack."""
        self._wrapper = connections[self._using]
        try:
            return self._run_on_connection()
        except (ConnectionLost, TransactionRolledBack):
            self._refuse_more()
            raise

    def clean_up(self) -> None:
        """Undo what was done since the savepoint that the procedure has left open, if it has."""
        if self._open:
            with suppress(Error), self._wrapper.cursor() as self._cursor:
                self._close_savepoints()

    def _run_on_connection(self) -> T:
        try:
            self._require_transaction()
            with self._wrapper.cursor() as self._cursor:
                self._begin_for_real()
                return self._run()
        except Error as error:
            raise self._classified(error) from error

    def _require_transaction(self) -> None:
        if not self._wrapper.in_atomic_block and self._wrapper.get_autocommit():
            raise TransactionRequired(
                f"the Django connection {self._using!r} is in no transaction: enqueue inside transaction.atomic() or "
                "`async with aatomic():`, or use ox.transaction()"
            )

    def _begin_for_real(self) -> None:
        """SQLite's transaction is begun by the sqlite3 module, if Django has not begun it."""
        if self._engine != "sqlite" or self._wrapper.connection.in_transaction:
            return
        if self._wrapper.connection.isolation_level is None:
            raise TransactionRolledBack(
                "SQLite has rolled back the whole transaction of this atomic block: begin again and repeat all of it"
            )
        # With autocommit off the module begins before INSERT and the like, not before a SAVEPOINT, whose RELEASE
        # would then commit.
        self._cursor.execute("BEGIN IMMEDIATE")

    def _run(self) -> T:
        try:
            return run_sync(self._procedure, self._execute)
        except (ConnectionLost, TransactionRolledBack):
            self._open.clear()  # there is nothing left to put right
            raise
        except BaseException:
            self._close_savepoints()
            raise

    def _execute(self, step: Step) -> Result:
        statement = step.statement
        if self._is_called_off and self._may_stop_before(statement):
            self._is_called_off = False  # what follows is the procedure's own cleanup
            raise CalledOff("nobody waits for this any more")
        result = self._fetch(step)
        if isinstance(statement, SavepointStatement):
            if statement.deed is SavepointDeed.OPEN:
                self._open.append(statement.savepoint)
            elif statement.deed is SavepointDeed.RELEASE and statement.savepoint in self._open:
                self._open.remove(statement.savepoint)
        return result

    def _may_stop_before(self, statement: Statement) -> bool:
        """A savepoint of an earlier visit is released or rolled back in any case."""
        if not isinstance(statement, SavepointStatement):
            return True
        return statement.deed is SavepointDeed.RELEASE and statement.savepoint in self._open

    def _fetch(self, step: Step) -> Result:
        text, names = step.statement.format
        cursor = self._cursor
        try:
            if step.many is not None:
                cursor.executemany(text, [[values[name] for name in names] for values in step.many])
            else:
                cursor.execute(text, [step.values[name] for name in names])
            if cursor.description is None:
                return Result((), max(cursor.rowcount, 0))
            rows = cursor.fetchall()
        except Error as error:
            raise self._classified(error) from error
        return Result(_as_stored(rows) if self._engine == "sqlite" else rows, len(rows))

    def _close_savepoints(self) -> None:
        names, self._open = self._open, []
        if names:
            with suppress(OxpullError):
                self._fetch(savepoint(SavepointDeed.ROLL_BACK, names[0]))
                self._fetch(savepoint(SavepointDeed.RELEASE, names[0]))

    def _refuse_more(self) -> None:
        """What the block did before is undone, so what it does from now on must not be committed."""
        if self._wrapper.in_atomic_block:
            self._wrapper.set_rollback(True)

    def _classified(self, error: Exception) -> OxpullError:
        if isinstance(error, TransactionManagementError):
            return TransactionRolledBack(
                f"this Django transaction can't go on ({error}): leave its atomic block and repeat all of it"
            )
        raw = self._wrapper.connection
        if raw is None or getattr(raw, "closed", False):
            return ConnectionLost(f"the Django connection {self._using!r} was lost: {error}")
        found: OxpullError = import_module(f"oxpull_async.drivers.{self._engine}.errors").classify(
            error.__cause__ or error
        )
        return found


def _as_stored(rows: Sequence[Row]) -> list[Row]:
    """Django has sqlite3 make datetimes of the texts in its columns; our procedures read the texts."""
    return [[value.isoformat(" ") if isinstance(value, datetime.datetime) else value for value in row] for row in rows]
