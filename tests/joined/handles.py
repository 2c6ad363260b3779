"""How callers reach their database: every connection and session that `ox.bind` takes, behind one face.

A `Caller` is somebody else's code: it has a transaction and rows of its own (the table `orders`), and it hands
`bindable` to `ox.bind`. Statements have `?` for their values.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"
LEVELS = {
    "postgres": [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE],
    "mysql": [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE],
    "sqlite": [SERIALIZABLE],
}
ORDERS = "CREATE TABLE IF NOT EXISTS orders (n INTEGER NOT NULL PRIMARY KEY)"


class Caller(abc.ABC):
    """One connection of the caller's, in at most one transaction at a time."""

    bindable: Any

    def __init__(self, url: str) -> None:
        self.url = url

    @abc.abstractmethod
    async def open(self) -> None: ...

    @abc.abstractmethod
    async def close(self) -> None: ...

    @abc.abstractmethod
    async def begin(self, level: str | None = None) -> None: ...

    @abc.abstractmethod
    async def commit(self) -> None: ...

    @abc.abstractmethod
    async def rollback(self) -> None: ...

    @abc.abstractmethod
    async def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement returns."""

    @abc.abstractmethod
    async def run(self, statement: str, *values: Any) -> None:
        """A statement that returns no rows."""

    async def order(self, n: int) -> None:
        """Write a row of its own."""
        await self.run("INSERT INTO orders (n) VALUES (?)", n)

    async def orders(self) -> set[int]:
        """Its own rows, as its transaction sees them."""
        return {n for (n,) in await self.query("SELECT n FROM orders")}

    async def look(self) -> None:
        """Read something: a transaction that reads from a snapshot has taken it then."""
        await self.orders()


class AsyncpgCaller(Caller):
    """`asyncpg.connect`, and asyncpg's own transaction objects."""

    async def open(self) -> None:
        import asyncpg

        self.bindable = await asyncpg.connect(self.url)

    async def close(self) -> None:
        self.bindable.terminate()

    async def begin(self, level: str | None = None) -> None:
        self._transaction = self.bindable.transaction(isolation=level.lower().replace(" ", "_") if level else None)
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        if self.bindable.is_in_transaction():  # asyncpg refuses it after a COMMIT that failed
            await self._transaction.rollback()

    async def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.bindable.fetch(_numbered(statement), *values)]

    async def run(self, statement: str, *values: Any) -> None:
        await self.bindable.execute(_numbered(statement), *values)


class AsyncpgPoolCaller(AsyncpgCaller):
    """A proxy out of the caller's pool, and a BEGIN written by hand."""

    async def open(self) -> None:
        import asyncpg

        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.bindable = await self.pool.acquire()

    async def close(self) -> None:
        self.pool.terminate()

    async def begin(self, level: str | None = None) -> None:
        await self.bindable.execute(f"BEGIN ISOLATION LEVEL {level}" if level else "BEGIN")

    async def commit(self) -> None:
        await self.bindable.execute("COMMIT")

    async def rollback(self) -> None:
        await self.bindable.execute("ROLLBACK")


class AiosqliteCaller(Caller):
    """The sqlite3 module's legacy mode, aiosqlite's default: the driver begins before the first write."""

    isolation_level: str | None = ""

    async def open(self) -> None:
        import aiosqlite

        path = self.url.removeprefix("sqlite:///")
        self.bindable = await aiosqlite.connect(path, isolation_level=self.isolation_level)

    async def close(self) -> None:
        await self.bindable.close()

    async def begin(self, level: str | None = None) -> None:
        """There's nothing to do: the caller believes itself in a transaction from here on."""

    async def commit(self) -> None:
        await self.bindable.commit()

    async def rollback(self) -> None:
        await self.bindable.rollback()

    async def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.bindable.execute_fetchall(statement, values)]

    async def run(self, statement: str, *values: Any) -> None:
        await self.bindable.execute_fetchall(statement, values)

    async def look(self) -> None:
        if not self.bindable.in_transaction:
            await self.run("BEGIN")
        await self.orders()


class AiosqliteManualCaller(AiosqliteCaller):
    """`isolation_level=None`: the caller begins by itself."""

    isolation_level = None

    async def begin(self, level: str | None = None) -> None:
        await self.bindable.execute("BEGIN")


class AsyncmyCaller(Caller):
    """asyncmy as it comes: autocommit off, so that it's always in a transaction."""

    autocommit = False

    async def open(self) -> None:
        import asyncmy

        parts = urlsplit(self.url)
        self.bindable = await asyncmy.connect(
            host=parts.hostname, port=parts.port, user=unquote(parts.username or ""),
            password=unquote(parts.password or ""), db=parts.path.lstrip("/"), autocommit=self.autocommit,
        )  # fmt: skip

    async def close(self) -> None:
        self.bindable.close()

    async def begin(self, level: str | None = None) -> None:
        if level:
            await self.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")

    async def commit(self) -> None:
        await self.bindable.commit()

    async def rollback(self) -> None:
        await self.bindable.rollback()

    async def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.bindable.cursor() as cursor:
            await cursor.execute(statement.replace("?", "%s"), values or None)
            return [tuple(row) for row in await cursor.fetchall()]

    async def run(self, statement: str, *values: Any) -> None:
        async with self.bindable.cursor() as cursor:
            await cursor.execute(statement.replace("?", "%s"), values or None)


class AsyncmyAutocommitCaller(AsyncmyCaller):
    """autocommit on, and a BEGIN for each transaction."""

    autocommit = True

    async def begin(self, level: str | None = None) -> None:
        await super().begin(level)
        await self.run("BEGIN")


class SqlalchemyCaller(Caller):
    """An `AsyncConnection`."""

    driver: str

    async def open(self) -> None:
        self.engine: AsyncEngine = create_async_engine(sqlalchemy_url(self.url, self.driver), poolclass=NullPool)
        await self._start()

    async def _start(self) -> None:
        self.bindable = await self.engine.connect()

    async def close(self) -> None:
        await self.bindable.close()
        await self.engine.dispose()

    async def begin(self, level: str | None = None) -> None:
        if level and not self.driver.startswith("sqlite"):
            await self.bindable.execution_options(isolation_level=level)
        await self.bindable.begin()

    async def commit(self) -> None:
        await self.bindable.commit()

    async def rollback(self) -> None:
        await self.bindable.rollback()

    async def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        result = await self.bindable.execute(*_named(statement, values))
        return [tuple(row) for row in result.fetchall()]

    async def run(self, statement: str, *values: Any) -> None:
        await self.bindable.execute(*_named(statement, values))

    async def look(self) -> None:
        if self.driver.startswith("sqlite"):
            await self.run("BEGIN")  # neither SQLAlchemy nor the sqlite3 module begins for a SELECT
        await self.orders()


class SqlalchemySessionCaller(SqlalchemyCaller):
    """An `AsyncSession`, which begins by itself."""

    async def _start(self) -> None:
        self.bindable = AsyncSession(self.engine)

    async def begin(self, level: str | None = None) -> None:
        if level and not self.driver.startswith("sqlite"):
            await self.bindable.connection(execution_options={"isolation_level": level})


@dataclass(frozen=True)
class Handle:
    """A kind of caller."""

    name: str
    dialect: str
    make: Callable[[str], Caller]
    levels: tuple[str, ...]
    """The isolation levels at which it's looked at in a small run; all handles together see all of them."""
    leads: bool = False
    """It stands for the others of its dialect where a small run looks at a few only."""
    spares_on_cancel: bool = False
    """A cancelled statement leaves the transaction, and what was done in it, as it was."""

    @property
    def is_sqlalchemy(self) -> bool:
        return "+" in self.name

    def __str__(self) -> str:
        return self.name


def _sqlalchemy(
    driver: str, dialect: str, *, connection: tuple[str, ...], session: tuple[str, ...], leads: bool = False,
    spares_on_cancel: bool = False,
) -> list[Handle]:  # fmt: skip
    def made(kind: type[SqlalchemyCaller]) -> type[SqlalchemyCaller]:
        return type(kind.__name__, (kind,), {"driver": driver})

    return [
        Handle(f"{driver}-connection", dialect, made(SqlalchemyCaller), connection, spares_on_cancel=spares_on_cancel),
        Handle(f"{driver}-session", dialect, made(SqlalchemySessionCaller), session, leads, spares_on_cancel),
    ]


_RC, _RR, _SER = READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE
_ALL = (_RC, _RR, _SER)

HANDLES = {
    handle.name: handle
    for handle in [
        Handle("asyncpg", "postgres", AsyncpgCaller, _ALL, leads=True, spares_on_cancel=True),
        Handle("asyncpg-pool", "postgres", AsyncpgPoolCaller, (_RC,), spares_on_cancel=True),
        *_sqlalchemy("postgresql+asyncpg", "postgres", connection=(_RR,), session=(_RC, _SER), leads=True),
        *_sqlalchemy("postgresql+psycopg", "postgres", connection=(_SER,), session=(_RC, _RR)),
        Handle("aiosqlite", "sqlite", AiosqliteCaller, _ALL, leads=True, spares_on_cancel=True),
        Handle("aiosqlite-manual", "sqlite", AiosqliteManualCaller, _ALL, spares_on_cancel=True),
        *_sqlalchemy("sqlite+aiosqlite", "sqlite", connection=_ALL, session=_ALL, leads=True, spares_on_cancel=True),
        Handle("asyncmy", "mysql", AsyncmyCaller, _ALL, leads=True),
        Handle("asyncmy-autocommit", "mysql", AsyncmyAutocommitCaller, (_RR,)),
        *_sqlalchemy("mysql+asyncmy", "mysql", connection=(_SER,), session=(_RC, _RR), leads=True),
        *_sqlalchemy("mysql+aiomysql", "mysql", connection=(_RC,), session=(_RR,)),
    ]
}


def sqlalchemy_url(url: str, driver: str) -> str:
    """The same database for SQLAlchemy."""
    scheme, _, rest = url.partition("://")
    assert scheme in ("postgresql", "sqlite", "mysql")
    return f"{driver}://{rest}"


def _numbered(statement: str) -> str:
    numbers = iter(range(1, 100))
    return re.sub(r"\?", lambda _: f"${next(numbers)}", statement)


def _named(statement: str, values: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    numbers = iter(range(100))
    named = re.sub(r"\?", lambda _: f":v{next(numbers)}", statement)
    return text(named), {f"v{number}": value for number, value in enumerate(values)}
