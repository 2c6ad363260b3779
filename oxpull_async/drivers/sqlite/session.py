"""An aiosqlite connection of the caller's."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import Generic, TypeVar

import aiosqlite
import anyio

from oxpull_async.drivers._procedure import Procedure, Result, Step, run_sync
from oxpull_async.drivers._savepoints import SavepointDeed, SavepointStatement
from oxpull_async.drivers.sqlite._hop import in_thread
from oxpull_async.drivers.sqlite._turn import executed
from oxpull_async.drivers.sqlite.errors import DRIVER_ERRORS, classify
from oxpull_async.exceptions import StoreError, TransactionRequired

T = TypeVar("T")

_CANCEL_SECONDS = 10.0
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, from Python 3.12 on


class AiosqliteSession:
    """For the length of one call. A procedure is one hop into the connection's thread."""

    engine = "sqlite"

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._raw = connection

    @property
    def connection(self) -> object:
        return self._raw

    @property
    def identity_holder(self) -> object:
        return self._raw

    async def prepare(self) -> None:
        """Begin where the driver itself would begin with the caller's next write."""
        try:
            await in_thread(self._raw, _begin)
        except DRIVER_ERRORS as error:
            raise classify(error) from error

    async def run(self, procedure: Procedure[T]) -> T:
        """A cancel stops the procedure at its next statement, undoes what it did, and is raised after that.

        Nothing is interrupted: SQLite would answer that by rolling the caller's whole transaction back.
        """
        work = _Work(procedure)
        hop = asyncio.ensure_future(in_thread(self._raw, work.run))
        try:
            return await asyncio.shield(hop)
        except asyncio.CancelledError:
            work.called_off = True
            await _ended(hop)
            raise
        except DRIVER_ERRORS as error:
            raise classify(error) from error


class _Work(Generic[T]):
    """A procedure on its way through the connection's thread."""

    def __init__(self, procedure: Procedure[T]) -> None:
        self._procedure = procedure
        self.called_off = False

    def run(self, connection: sqlite3.Connection) -> T:
        factory, connection.text_factory = connection.text_factory, str
        try:
            return run_sync(self._procedure, lambda step: self._execute(step, connection))
        finally:
            connection.text_factory = factory

    def _execute(self, step: Step, connection: sqlite3.Connection) -> Result:
        if self.called_off and not _closes_savepoint(step):
            raise StoreError("the call was cancelled")
        cursor = connection.cursor()
        cursor.row_factory = None  # the caller's would be inherited
        try:
            return executed(step, cursor)
        except sqlite3.Error as error:
            raise classify(error) from error


def _begin(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        return
    legacy = getattr(connection, "autocommit", _LEGACY) == _LEGACY
    if not legacy or connection.isolation_level is None:
        raise TransactionRequired(
            "the bound aiosqlite connection is in no transaction: run BEGIN IMMEDIATE first, or use ox.transaction()"
        )
    connection.execute(f"BEGIN {connection.isolation_level}")


def _closes_savepoint(step: Step) -> bool:
    statement = step.statement
    return isinstance(statement, SavepointStatement) and statement.deed is not SavepointDeed.OPEN


async def _ended(hop: asyncio.Future[T]) -> None:
    deadline = time.monotonic() + _CANCEL_SECONDS
    with anyio.CancelScope(shield=True):
        while not hop.done() and (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait([hop], timeout=left)
            except asyncio.CancelledError:
                continue  # one is about to be raised
    hop.add_done_callback(lambda done: done.cancelled() or done.exception())
