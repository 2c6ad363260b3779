"""MariaDB and MySQL over asyncmy: connections, transactions, and their ends."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import asyncmy
from asyncmy.constants import CLIENT

from oxpull_async._shield import shielded
from oxpull_async.drivers._procedure import Procedure, run
from oxpull_async.drivers.mysql import migrations
from oxpull_async.drivers.mysql._address import connect_arguments
from oxpull_async.drivers.mysql._connection import Connection, Limits, QuietCursor
from oxpull_async.drivers.mysql._orphans import Orphans
from oxpull_async.drivers.mysql._transactions import BEGIN
from oxpull_async.drivers.mysql.errors import DRIVER_ERRORS, classify
from oxpull_async.drivers.mysql.session import AsyncmySession
from oxpull_async.exceptions import ConnectionLost, InvalidSettings, NotOpen, PoolTimeout, WrongDatabase
from oxpull_async.ports import Capabilities
from oxpull_async.settings import Settings

T = TypeVar("T")

_APPLICATION = "oxpull_async"
_CLOSED = "the MySQL connections are closed; open the Oxpull first (`async with ox:`)"
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}
# Longer than that at rest, and a firewall on the way may have dropped it without telling either side.
_MAX_IDLE_SECONDS = 60.0
_DESCRIBE = "SELECT VERSION(), CONNECTION_ID(), @@max_allowed_packet"
_QUOTE = (
    "SELECT text FROM JSON_TABLE(JSON_ARRAY(JSON_OBJECT('text', '\"')), '$[*]' "
    "COLUMNS (text varchar(9) PATH '$.text')) AS quote"
)
_PREPARED = 32
_RECHECKS = 4
_RECHECK_SECONDS = 2.0
_RECHECK_LOCK_SECONDS = 1.0


class Pool:
    """The library's own connections to one MariaDB or MySQL database.

    asyncmy's own pool connects while it holds its lock, and one host that
    never answers would stop everybody there.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self._arguments = connect_arguments(url)
        self._settings = settings
        self._limits = Limits(settings.statement_timeout)
        self._orphans = Orphans(self._connect_plainly)
        self._free: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._slots: anyio.Semaphore | None = None
        self._rechecks: anyio.Semaphore | None = None

    @property
    def largest_packet(self) -> int | None:
        """The server's ``max_allowed_packet``."""
        return self._limits.max_packet_bytes

    async def open(self) -> None:
        """Connect once, so that a wrong address fails here and not at the first enqueue."""
        first = await self._new_connection()
        self._rechecks = anyio.Semaphore(_RECHECKS)
        self._slots = anyio.Semaphore(self._settings.pool_size, fast_acquire=True)
        self._keep(first)

    async def describe(self) -> Capabilities:
        """Ask the server what it is. Raises: WrongDatabase if it's too old."""
        async with self.connection(reading=True) as connection:
            ((version, thread, packet),) = (await connection.command(_DESCRIBE)).rows
            self._orphans.threads_are_the_servers = thread == connection.raw.thread_id()
            self._limits.max_packet_bytes = packet
            _refuse_old(version)
            ((quote,),) = (await connection.command(_QUOTE)).rows
        _refuse_broken(version, quote)
        return Capabilities(
            engine="mysql",
            server_version=version,
            skip_locked=True,
            notifications=False,
            own_snapshot_levels=True,
            rechecks=True,
            fine_lock_timeout=False,
        )

    async def migrate(self, *, lean: bool) -> list[str]:
        """Over a connection of its own, without our bound on statements: an index may take its time."""
        limits = Limits(migrations.STATEMENT_SECONDS)
        connection = Connection(await self._connect(), self._connect, limits)
        try:
            return await migrations.migrate(connection, lean=lean)
        finally:
            connection.cut()

    async def close(self) -> None:
        """Close every connection; whoever doesn't finish in time is cut off."""
        slots, self._slots = self._slots, None
        if slots is None:
            return
        try:
            await shielded(self._drain(slots), within=self._settings.close_timeout)
        except TimeoutError:
            self._orphans.forget()
            for connection in self._busy:
                connection.cut()
            self._discard_free()

    async def read(self, procedure: Procedure[T]) -> T:
        """Run a procedure that only reads."""
        async with self.connection(reading=True) as connection:
            return await run(procedure, connection.execute)

    async def write(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """Run a procedure that is one transaction: a single statement, or it says BEGIN and COMMIT itself.

        Competitors are waited for row by row, so the procedures keep that bound; ``wait_seconds`` is unused.
        """
        async with self.connection() as connection:
            return await run(procedure, connection.execute)

    async def transact(self, procedure: Procedure[T], *, wait_seconds: float | None = None) -> T:
        """Run a procedure within a READ COMMITTED transaction: all of it, or nothing."""
        async with self.connection() as connection:
            await connection.execute(BEGIN())
            answer = await run(procedure, connection.execute)
            await connection.commit()
            return answer

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncmySession]:
        """A READ COMMITTED transaction for as long as the block lasts; an error leaves nothing of it."""
        async with self.connection() as connection:
            await connection.command("BEGIN")
            yield AsyncmySession(connection.raw)
            await connection.commit()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Alone]:
        """A connection outside of the pool, for whichever event loop calls."""
        connection = await self._new_connection()
        try:
            yield Alone(connection)
        finally:
            connection.cut()

    async def recheck(self, procedure: Procedure[T]) -> T:
        """At most four at once; who can't get a turn, a connection or an answer within 2 s gets an error."""
        turns = self._rechecks
        if turns is None:
            raise NotOpen(_CLOSED)
        try:
            with anyio.fail_after(_RECHECK_SECONDS):
                await turns.acquire()
        except TimeoutError as error:
            raise PoolTimeout("too many rechecks of unique keys are under way in this process") from error
        try:
            return await self._recheck(procedure)
        finally:
            turns.release()

    async def _recheck(self, procedure: Procedure[T]) -> T:
        """Bounded, for a migration that waits for the caller's own locks would make this wait for the caller."""
        chosen = "connect_timeout" in self._settings.model_fields_set
        within = self._settings.connect_timeout if chosen else _RECHECK_SECONDS
        raw = await self._connect(within, table_wait_seconds=_RECHECK_LOCK_SECONDS)
        connection = Connection(raw, self._connect, Limits(_RECHECK_SECONDS))
        try:
            return await run(procedure, connection.execute)
        finally:
            connection.cut()

    @asynccontextmanager
    async def connection(self, *, reading: bool = False) -> AsyncIterator[Connection]:
        """A connection of the pool; what it left unfinished is rolled back.

        Raises: NotOpen, PoolTimeout, ConnectionLost.
        """
        slots = self._slots
        if slots is None:
            raise NotOpen(_CLOSED)
        await self._take_slot(slots)
        try:
            connection = await self._take()
            connection.begin_work(reading=reading)
            try:
                yield connection
            finally:
                await self._give_back(connection)
        finally:
            slots.release()

    async def _take_slot(self, slots: anyio.Semaphore) -> None:
        try:
            slots.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait_for_slot(slots)
        if self._slots is not slots:
            slots.release()
            raise NotOpen("the MySQL connections were closed while this call waited for one")

    async def _wait_for_slot(self, slots: anyio.Semaphore) -> None:
        try:
            with anyio.fail_after(self._settings.pool_timeout):
                await slots.acquire()
        except TimeoutError as error:
            raise PoolTimeout(
                f"no MySQL connection became free within {self._settings.pool_timeout:g} s "
                f"(pool_size={self._settings.pool_size}); raise pool_size or shorten what holds them"
            ) from error

    async def _take(self) -> Connection:
        """The connection that came back last, if it's still good; else a new one."""
        while self._free:
            connection = self._free.pop()
            if connection.usable and time.monotonic() - connection.idle_since < _MAX_IDLE_SECONDS:
                self._busy.add(connection)
                return connection
            connection.cut()
        connection = await self._new_connection()
        self._busy.add(connection)
        return connection

    async def _give_back(self, connection: Connection) -> None:
        try:
            await connection.roll_back()
        finally:
            self._busy.discard(connection)
            if connection.lost:
                self._discard_free()  # those at rest beside it have most likely met the same fate
            orphan = connection.orphan
            if orphan is not None:
                self._orphans.end(orphan)
            if self._slots is not None and connection.usable:
                self._keep(connection)
            else:
                connection.cut()

    def _keep(self, connection: Connection) -> None:
        connection.rest()
        self._free.append(connection)

    def _discard_free(self) -> None:
        while self._free:
            self._free.pop().cut()

    async def _new_connection(self) -> Connection:
        return Connection(await self._connect(), self._connect, self._limits)

    async def _connect(self, within: float | None = None, *, table_wait_seconds: float | None = None) -> Any:
        """A connection set up as all of ours are: see ``session``."""
        return await self._connected(
            within,
            autocommit=None,
            client_flag=CLIENT.FOUND_ROWS,
            cursor_cls=QuietCursor,
            stmt_cache_size=_PREPARED if self._settings.statement_cache else 0,
            init_command=session(table_wait_seconds or self._settings.statement_timeout),
            program_name=_APPLICATION,
        )

    async def _connect_plainly(self) -> Any:
        return await self._connected(None, autocommit=None)

    async def _connected(self, within: float | None, **arguments: Any) -> Any:
        """Bounded as a whole: the driver's own bound is over before the server's greeting is awaited."""
        seconds = within or self._settings.connect_timeout
        try:
            with anyio.fail_after(seconds):
                return await asyncmy.connect(**self._arguments, **arguments, connect_timeout=seconds)
        except TimeoutError as error:
            raise ConnectionLost(f"the MySQL server did not answer within {seconds:g} s") from error
        except RuntimeError as error:
            raise InvalidSettings(f"the MySQL driver can't log in: {error}") from error
        except DRIVER_ERRORS as error:
            raise classify(error) from error

    async def _drain(self, slots: anyio.Semaphore) -> None:
        for _ in range(self._settings.pool_size):
            await slots.acquire()
        while self._free:
            await self._free.pop().close()
        await self._orphans.settle()


class Alone:
    """A connection that belongs to one user; what a procedure left unfinished is rolled back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self, procedure: Procedure[T]) -> T:
        return await self._run(procedure, reading=True)

    async def write(self, procedure: Procedure[T]) -> T:
        return await self._run(procedure, reading=False)

    async def _run(self, procedure: Procedure[T], *, reading: bool) -> T:
        self._connection.begin_work(reading=reading)
        try:
            return await run(procedure, self._connection.execute)
        finally:
            await self._connection.roll_back()


def session(table_wait_seconds: float) -> str:
    """Sets up a session in one round trip, whatever the server's defaults are.

    READ COMMITTED takes no gap locks; strict SQL refuses what it would have
    to cut; a wait for a row ends after a second. MariaDB turns a long IN into
    a join, which reads the whole table. No guard against careless statements
    applies to ours, whose time we bound ourselves.
    """
    return (
        "SET autocommit = 1, time_zone = '+00:00', sql_mode = 'TRADITIONAL', innodb_lock_wait_timeout = 1, "
        f"lock_wait_timeout = {max(1, round(table_wait_seconds))}, completion_type = 'NO_CHAIN', "
        "sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615 "
        "/*M! , in_predicate_conversion_threshold = 0, max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */; "
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
    )


def _refuse_old(version: str) -> None:
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    numbers = re.findall(r"\d+", version)
    found = (int(numbers[0]), int(numbers[1]))
    if found < _OLDEST[name]:
        oldest = ".".join(map(str, _OLDEST[name]))
        raise WrongDatabase(f"{name} {version} is too old: oxpull_async needs {oldest} or later")


def _refuse_broken(version: str, quote: str) -> None:
    """The first releases of MariaDB 10.6 leave escapes in the texts of JSON_TABLE, through which outcomes go."""
    if quote != '"':
        raise WrongDatabase(
            f"MariaDB {version} has a JSON_TABLE that doesn't unescape text, so outcomes can't be written; "
            "upgrade to a later release of the same series"
        )
