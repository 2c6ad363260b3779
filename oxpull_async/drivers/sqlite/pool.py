"""SQLite over aiosqlite: connections, transactions, and their ends."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from oxpull_async.drivers._addresses import url_parts
from oxpull_async.drivers._procedure import Procedure, run_sync
from oxpull_async.drivers.sqlite import migrations
from oxpull_async.drivers.sqlite._held import HeldTransaction, TransactionOver, held
from oxpull_async.drivers.sqlite._line import Line
from oxpull_async.drivers.sqlite._turn import Turn
from oxpull_async.drivers.sqlite._writer import Writer
from oxpull_async.drivers.sqlite.errors import DRIVER_ERRORS, classify
from oxpull_async.exceptions import InvalidSettings, NotOpen, WrongDatabase
from oxpull_async.ports import Capabilities
from oxpull_async.settings import Settings
from oxpull_async.telemetry import log

T = TypeVar("T")

_MEMORY = ":memory:"
_OLDEST = (3, 35, 0)
_LOCK_SECONDS = 10.0
_MIGRATION_SECONDS = 300.0


class Pool:
    """The library's own connections to one SQLite file: one that writes, and one that reads beside it.

    SQLite has one writer at a time, so more connections would only wait for
    each other. A database in memory is seen by one connection alone.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self._path = database_path(url)
        self._settings = settings
        self._writer: Line | None = None
        self._reader: Line | None = None
        self._held: HeldTransaction | None = None
        """In memory alone: a transaction that lasts must let others read, for there is no second connection."""

    @property
    def largest_packet(self) -> int | None:
        """None worth telling: a gigabyte."""
        return None

    async def open(self) -> None:
        """Connect, so that a wrong path fails here and not at the first enqueue."""
        if self._writer is not None:
            return
        self._refuse_missing_folder()
        self._writer = self._reader = None
        try:
            await self._open_writer()
            await self._open_reader()
        except BaseException:
            await self.close()
            raise

    def _refuse_missing_folder(self) -> None:
        folder = Path(self._path).absolute().parent
        if self._path != _MEMORY and not folder.is_dir():
            raise InvalidSettings(f"the SQLite file {self._path} can't be made: there is no folder {folder}")

    async def _open_writer(self) -> None:
        writer = Writer(self._path, self._settings)
        journal, *_ = await writer.open(
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {self._settings.synchronous}",
            "PRAGMA foreign_keys = ON",
        )
        self._writer = writer
        if journal != "wal" and self._path != _MEMORY:
            log(
                logging.WARNING,
                "sqlite_without_wal",
                f"the journal of {self._path} stays {journal!r}, so readers and writers keep each other waiting",
            )

    async def _open_reader(self) -> None:
        if self._path == _MEMORY:
            self._reader = self._writer
            return
        reader = Line(self._path, self._settings)
        await reader.open("PRAGMA query_only = ON")
        self._reader = reader

    async def describe(self) -> Capabilities:
        """Raises: WrongDatabase if the SQLite that this Python is linked with is too old."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise WrongDatabase(f"SQLite {sqlite3.sqlite_version} is too old: oxpull_async needs 3.35 or later")
        return Capabilities(
            engine="sqlite",
            server_version=sqlite3.sqlite_version,
            skip_locked=False,
            notifications=False,
            own_snapshot_levels=False,
            rechecks=False,
            fine_lock_timeout=True,
        )

    async def migrate(self, *, lean: bool) -> list[str]:
        """In one transaction, without our bound on statements: an index may take its time."""

        def work(turn: Turn) -> list[str]:
            try:
                return migrations.migrate(turn.connection, lean=lean)
            except DRIVER_ERRORS as error:
                raise classify(error) from error

        return await _opened(self._writer).run(work, patience=_MIGRATION_SECONDS)

    async def close(self) -> None:
        """Close both connections; whatever isn't done in time is interrupted."""
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        try:
            if reader is not None:
                await reader.close()
        finally:
            if writer is not None:
                await writer.close()

    async def read(self, procedure: Procedure[T]) -> T:
        """Run a procedure that only reads."""
        if self._held is not None:
            with suppress(TransactionOver):
                return await self._held.run(procedure)
        return await _opened(self._reader).run(lambda turn: run_sync(procedure, turn.execute), patience=_LOCK_SECONDS)

    async def write(self, procedure: Procedure[T], *, wait_seconds: float | None = None, urgent: bool = False) -> T:
        """Run a procedure within a transaction, in one hop into the connection's thread.

        ``wait_seconds`` bounds the wait for other processes that write to the file. An urgent procedure
        goes before all that wait in this process.
        """
        return await _opened(self._writer).run(
            lambda turn: run_sync(procedure, turn.execute),
            patience=_LOCK_SECONDS if wait_seconds is None else wait_seconds,
            urgent=urgent,
        )

    async def transact(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """The same: here every write is a transaction."""
        return await self.write(procedure, wait_seconds=wait_seconds)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Urgent]:
        """The same two connections, for any event loop: a third would wait for the first, who need not."""
        yield Urgent(self)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[HeldTransaction]:
        """A transaction for as long as the block lasts, during which nobody else writes to the file."""
        writer, bound = _opened(self._writer), self._settings.statement_timeout
        async with held(writer, patience=_LOCK_SECONDS, order_seconds=bound) as transaction:
            if self._reader is writer:
                self._held = transaction
            try:
                yield transaction
            finally:
                self._held = None

    async def recheck(self, procedure: Procedure[T]) -> T:
        """The reading connection is outside of every transaction already."""
        return await self.read(procedure)


class Urgent:
    """What is written through this goes before all that wait."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def read(self, procedure: Procedure[T]) -> T:
        return await self._pool.read(procedure)

    async def write(self, procedure: Procedure[T]) -> T:
        return await self._pool.write(procedure, urgent=True)


def database_path(url: str) -> str:
    """What sqlite3 opens: the file's path, or ``:memory:``.

    Raises: InvalidSettings for a URL that says anything else.
    """
    parts = url_parts(url)
    if parts.netloc:
        raise InvalidSettings(
            f"database URL {url!r} names a host: a relative path follows three slashes, an absolute one four"
        )
    if parts.query or parts.fragment:
        raise InvalidSettings(
            f"database URL {url!r}: SQLite takes no parameters (in a path, write ? as %3F and # as %23)"
        )
    if parts.path == "/":
        raise InvalidSettings(f"database URL {url!r} names no file; use sqlite:///:memory: for one in memory")
    return unquote(parts.path[1:]) or _MEMORY


def _opened(line: Line | None) -> Line:
    if line is None:
        raise NotOpen("the SQLite connections are closed; open the Oxpull first (`async with ox:`)")
    return line
