"""PostgreSQL over asyncpg: connections, transactions, and their ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import asyncpg

from oxpull_async._shield import shielded
from oxpull_async.drivers._addresses import check_ports, url_parts
from oxpull_async.drivers._procedure import Procedure, Result, Step, run
from oxpull_async.drivers.postgres import migrations
from oxpull_async.drivers.postgres._connecting import connect
from oxpull_async.drivers.postgres._lender import Lender
from oxpull_async.drivers.postgres._watch import Watch
from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, READ_ONLY, classify, is_gone, unreadable
from oxpull_async.drivers.postgres.session import AsyncpgSession
from oxpull_async.exceptions import ConnectionLost, NotOpen, PoolTimeout, StoreError, WrongDatabase
from oxpull_async.ports import Capabilities
from oxpull_async.settings import Settings

T = TypeVar("T")

_APPLICATION = "oxpull_async"
_CLEANUP_SECONDS = 2.0
_OLDEST = 13
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_RECHECKS = 4
_RECHECK_SECONDS = 2.0
# SET LOCAL, so that a pooler's server session doesn't keep the bounds. A migration waiting for the caller's own
# locks would make the recheck wait for the caller, which waits for the recheck: hence the short bound on locks.
_RECHECK_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; "
    "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '2s'"
)


class Connection:
    """One asyncpg connection as a procedure sees it."""

    def __init__(self, connection: Any, timeout: float | None = None) -> None:
        self.raw = connection
        self._timeout = timeout
        """In seconds for each statement; None where somebody else sees to it."""

    async def execute(self, step: Step) -> Result:
        """Run one statement; counts are counts of returned rows, so every write that counts is RETURNING."""
        text, in_order = step.statement.dollar_call
        try:
            rows = await self.raw.fetch(text, *in_order(step.values), timeout=self._timeout)
        except DRIVER_ERRORS as error:
            found = classify(error, closed=is_gone(self.raw))
            if isinstance(found, StoreError) and found.code == READ_ONLY:
                self.raw.terminate()  # the primary may be elsewhere by now, and a new connection find it
            raise found from error
        return Result(rows, len(rows))

    async def command(self, text: str) -> None:
        """Run a statement without values, or several in one round trip."""
        try:
            await self.raw.execute(text, timeout=self._timeout)
        except DRIVER_ERRORS as error:
            raise classify(error, closed=is_gone(self.raw)) from error


class Alone(Connection):
    """A connection that belongs to one user, for procedures of one statement."""

    async def read(self, procedure: Procedure[T]) -> T:
        return await run(procedure, self.execute)

    async def write(self, procedure: Procedure[T]) -> T:
        return await run(procedure, self.execute)


class Pool:
    """The library's own connections to one PostgreSQL database.

    Nothing that runs here leaves a trace in the session, so connections go
    back without a reset query, which would cost more than an INSERT.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self._lender: Lender | None = None
        self._rechecks = anyio.Semaphore(_RECHECKS)
        self._watch = Watch(settings.statement_timeout)

    @property
    def largest_packet(self) -> int | None:
        """None worth telling: a gigabyte."""
        return None

    async def open(self) -> None:
        """Connect once, so that a wrong address fails here and not at the first enqueue."""
        settings = self._settings
        check_ports(url_parts(self._url))
        try:
            pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=settings.pool_size,
                timeout=settings.connect_timeout,
                connect=connect,
                reset=_nothing,
                **self.session_arguments(settings.statement_timeout),
            )
        except ValueError as error:
            raise unreadable(error) from None  # its words may be a part of the password
        except DRIVER_ERRORS as error:
            raise classify(error) from error
        self._lender = Lender(pool, settings.pool_timeout)

    def session_arguments(self, timeout: float | None) -> dict[str, Any]:
        """How every connection of ours is set up; a statement may take so many seconds.

        A pooler in transaction mode refuses settings at start-up and loses
        named statements, so without a statement cache there are neither.
        """
        if not self._settings.statement_cache:
            return {"statement_cache_size": 0, "command_timeout": timeout}
        return {
            "server_settings": {
                "application_name": _APPLICATION,
                "default_transaction_isolation": "read committed",
                "default_transaction_read_only": "off",
                "statement_timeout": "0" if timeout is None else f"{round(timeout * 1000)}ms",
            }
        }

    async def describe(self) -> Capabilities:
        """Ask the server what it is. Raises: WrongDatabase if it's too old."""
        async with self.connection() as connection:
            version = connection.raw.get_server_version()
        if version.major < _OLDEST:
            raise WrongDatabase(f"PostgreSQL {version.major} is too old: oxpull_async needs {_OLDEST} or later")
        return Capabilities(
            engine="postgres",
            server_version=f"{version.major}.{version.minor}",
            skip_locked=True,
            notifications=self._settings.statement_cache,
            own_snapshot_levels=True,
            rechecks=True,
            fine_lock_timeout=True,
        )

    async def migrate(self, *, lean: bool) -> list[str]:
        """Over a connection of its own, without our bound on statements: an index may take its time."""
        connection = await self._connect(self._settings.connect_timeout)
        try:
            return await migrations.migrate(connection, lean=lean)
        except DRIVER_ERRORS as error:
            raise classify(error, closed=is_gone(connection)) from error
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Close every connection; whoever doesn't finish in time is cut off."""
        lender, self._lender = self._lender, None
        if lender is None:
            return
        self._watch.stop()
        try:
            await shielded(lender.close(), within=self._settings.close_timeout)
        except TimeoutError:
            lender.terminate()

    def read(self, procedure: Procedure[T]) -> Coroutine[Any, Any, T]:
        """Run a procedure that only reads."""
        return self._run(procedure)

    def write(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> Coroutine[Any, Any, T]:
        """Run a procedure of one statement, which is its own transaction.

        Competitors are waited for row by row, so the statements carry that bound, and ``wait_seconds`` is unused.
        """
        return self._run(procedure)

    async def _run(self, procedure: Procedure[T]) -> T:
        """As within ``connection()``, which costs a lone INSERT more than its way to the server and back."""
        lender = self._require_lender()
        raw = lender.spare() or await lender.take()
        is_idle = False
        self._watch.begin(raw)
        try:
            answer = await run(procedure, Connection(raw).execute)
            is_idle = True
            return answer
        finally:
            self._watch.end(raw)
            if not (is_idle and lender.keep(raw)):
                await lender.give_back(raw)

    async def transact(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """Run a procedure within a READ COMMITTED transaction: all of it, or nothing."""
        async with self.connection() as connection:
            try:
                await connection.command(_BEGIN)
                answer = await run(procedure, connection.execute)
            except BaseException:
                await roll_back(connection)
                raise
            await commit(connection, within=self._settings.statement_timeout)
            return answer

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncpgSession]:
        """A READ COMMITTED transaction for as long as the block lasts."""
        async with self.connection() as connection:
            try:
                await connection.command(_BEGIN)
                yield AsyncpgSession(connection.raw, self._settings.statement_timeout)
            except BaseException:
                await roll_back(connection)
                raise
            await commit(connection, within=self._settings.statement_timeout)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Alone]:
        """A connection outside of the pool, for whichever event loop calls."""
        raw = await self._connect(self._settings.connect_timeout)
        try:
            yield Alone(raw, self._settings.statement_timeout)
        finally:
            raw.terminate()

    async def recheck(self, procedure: Procedure[T]) -> T:
        """At most four at once; who can't get a turn, a connection or an answer within 2 s gets an error."""
        try:
            with anyio.fail_after(_RECHECK_SECONDS):
                await self._rechecks.acquire()
        except TimeoutError as error:
            raise PoolTimeout("too many rechecks of unique keys are under way in this process") from error
        try:
            return await self._recheck(procedure)
        finally:
            self._rechecks.release()

    async def _recheck(self, procedure: Procedure[T]) -> T:
        chosen = "connect_timeout" in self._settings.model_fields_set
        within = self._settings.connect_timeout if chosen else _RECHECK_SECONDS
        connection = await self._connect(within)
        try:
            session = Connection(connection, 2 * _RECHECK_SECONDS)
            await session.command(_RECHECK_BEGIN)
            return await run(procedure, session.execute)
        finally:
            connection.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool. Raises: NotOpen, PoolTimeout, ConnectionLost."""
        lender = self._require_lender()
        raw = await lender.take()
        is_idle = False
        try:
            yield Connection(raw, self._settings.statement_timeout)
            is_idle = True
        finally:
            if not (is_idle and lender.keep(raw)):
                await lender.give_back(raw)

    def _require_lender(self) -> Lender:
        if self._lender is None:
            raise NotOpen("the PostgreSQL connections are closed; open the Oxpull first (`async with ox:`)")
        return self._lender

    async def _connect(self, within: float) -> Any:
        try:
            return await connect(self._url, timeout=within, **self.session_arguments(None))
        except DRIVER_ERRORS as error:
            raise classify(error) from error


async def commit(connection: Connection, *, within: float) -> None:
    """COMMIT to its end although the caller is cancelled. Raises: ConnectionLost where its outcome is unknown."""
    try:
        await shielded(connection.command("COMMIT"), within=within)
    except TimeoutError as error:
        connection.raw.terminate()
        raise ConnectionLost("PostgreSQL did not answer a COMMIT in time; its outcome is unknown") from error


async def roll_back(connection: Connection) -> None:
    """End a transaction within a bound, or the connection with it."""
    if is_gone(connection.raw):
        return
    try:
        await shielded(connection.command("ROLLBACK"), within=_CLEANUP_SECONDS)
    except (TimeoutError, StoreError):
        connection.raw.terminate()


async def _nothing(connection: Any) -> None:
    """No reset query: see ``Pool``."""
