"""An ``AsyncConnection`` or ``AsyncSession`` of SQLAlchemy's, on any of its async dialects of our engines.

Everything goes through SQLAlchemy, never over the driver's connection below
it: SQLAlchemy's ``begin()`` reaches the server only with its own first
statement, and what is run past it before that commits by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InvalidRequestError, ResourceClosedError, UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from oxpull_async._shield import shielded
from oxpull_async.drivers._joined.dialects import Dialect, dialect_of
from oxpull_async.drivers._joined.session import StepwiseRunner, garbled
from oxpull_async.drivers._procedure import Result, Row, Step
from oxpull_async.drivers._savepoints import SavepointDeed, SavepointStatement
from oxpull_async.drivers._statements import Statement, expanded
from oxpull_async.exceptions import (
    ConnectionLost,
    OxpullError,
    TransactionRequired,
    TransactionRolledBack,
)


class SqlalchemySession(StepwiseRunner):
    """For the length of one call; an ``AsyncSession`` gives its connection, and is not flushed."""

    def __init__(self, handle: AsyncConnection | AsyncSession) -> None:
        self._handle = handle
        self._connection: AsyncConnection | None = handle if isinstance(handle, AsyncConnection) else None
        self._depths: dict[str, int] = {}
        self._bind = _bind_of(handle)
        self._dialect: Dialect = dialect_of(self._bind.dialect.name, self._bind.dialect.driver)

    @property
    def engine(self) -> str:
        return self._dialect.engine

    @property
    def connection(self) -> object:
        return self._handle.sync_session if isinstance(self._handle, AsyncSession) else self._handle.sync_connection

    @property
    def identity_holder(self) -> object:
        return self._bind.engine

    async def connect(self) -> object:
        """An ``AsyncSession`` begins by this."""
        with self._told():
            if isinstance(self._handle, AsyncSession):
                self._connection = await self._handle.connection()
            return (await self._open().get_raw_connection()).driver_connection

    async def prepare(self) -> None:
        connection = self._open()
        if not connection.in_transaction():
            raise TransactionRequired(
                "the bound AsyncConnection is in no transaction: use `async with engine.begin() as connection:`"
            )
        await self._begin_for_real(connection)

    async def execute(self, step: Step) -> Result:
        text, names = self._text(step.statement)
        parameters: Any
        if step.many is None:
            text, parameters = expanded(text, _parameters(names, step.values))
        else:
            parameters = [_parameters(names, values) for values in step.many]
        work = self._executed(text, parameters)
        return await (work if self._dialect.interruptible else shielded(work, within=math.inf))

    def _text(self, statement: Statement) -> tuple[str, tuple[str, ...]]:
        """SQLAlchemy has asyncpg prepare every text: few names of savepoints make few texts, each prepared once."""
        if not isinstance(statement, SavepointStatement):
            text: tuple[str, tuple[str, ...]] = getattr(statement, self._dialect.style)
            return text
        depth = self._depths.setdefault(statement.savepoint, len(self._depths) + 1)
        if statement.deed is SavepointDeed.RELEASE:
            del self._depths[statement.savepoint]
        return f"{statement.deed.value} oxpull_{depth}", ()

    async def _executed(self, text: str, parameters: Any) -> Result:
        with self._told():
            try:
                cursor = await self._open().exec_driver_sql(text, parameters or None)
            except UnicodeError as error:
                if not isinstance(error, UnicodeEncodeError):
                    await self._open().invalidate(error)
                raise garbled(error) from error
            if not cursor.returns_rows:
                return Result((), cursor.rowcount)
            rows: list[Row] = list(cursor.fetchall())
        return Result(rows, len(rows))

    def abandon(self) -> None:
        """SQLAlchemy has invalidated the connection by itself when a statement of it was cancelled."""

    def is_gone(self) -> bool:
        return self._open().invalidated

    async def _begin_for_real(self, connection: AsyncConnection) -> None:
        """Have the server's transaction begin now, and see that it did."""
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        if self._dialect.in_transaction(driver):
            return
        if begin := self._dialect.begin(driver):
            await self.execute(Statement("begin", begin)())
        if not self._dialect.in_transaction(driver):
            raise TransactionRequired(
                "the bound SQLAlchemy connection commits each statement by itself (isolation level AUTOCOMMIT); "
                "bind one that works in a transaction"
            )

    def _open(self) -> AsyncConnection:
        assert self._connection is not None, "prepare comes first"
        return self._connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLAlchemy's errors as the library's own, chained to the driver's."""
        try:
            yield
        except DBAPIError as error:
            raise self._classified(error) from error.orig or error
        except ResourceClosedError as error:
            raise TransactionRequired(f"the bound SQLAlchemy connection can't be used: {error}") from error
        except InvalidRequestError as error:
            if not self._handle.in_transaction():
                raise TransactionRequired(f"the bound SQLAlchemy session is in no transaction: {error}") from error
            raise TransactionRolledBack(
                f"this SQLAlchemy transaction can't go on ({error}): roll it back and repeat all of it"
            ) from error

    def _classified(self, error: DBAPIError) -> OxpullError:
        if error.connection_invalidated:
            return ConnectionLost(f"the connection was lost: {error.orig}")
        return self._dialect.classify(error.orig or error)


def _bind_of(handle: AsyncConnection | AsyncSession) -> Connection | Engine:
    if isinstance(handle, AsyncConnection):
        if handle.sync_connection is None:
            raise TransactionRequired("the bound AsyncConnection isn't started: `async with engine.begin()`")
        return handle.sync_connection
    try:
        return handle.sync_session.get_bind()
    except UnboundExecutionError as error:
        raise TypeError(
            "the bound AsyncSession is bound to no engine as a whole; bind the connection that it uses for the "
            "Oxpull's database: `ox.bind(await session.connection(bind_arguments={…}))`"
        ) from error


def _parameters(names: tuple[str, ...], values: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(values[name] for name in names)
