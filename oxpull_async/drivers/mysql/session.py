"""An asyncmy connection of the caller's."""

from __future__ import annotations

from typing import Any

from oxpull_async.drivers._joined.session import StepwiseRunner, garbled
from oxpull_async.drivers._procedure import Result, Step
from oxpull_async.drivers.mysql._connection import QuietCursor
from oxpull_async.drivers.mysql.errors import DRIVER_ERRORS, classify
from oxpull_async.exceptions import TransactionRequired


class AsyncmySession(StepwiseRunner):
    """For the length of one call. A statement that is cancelled costs the caller the connection: asyncmy closes it."""

    engine = "mysql"

    def __init__(self, connection: Any) -> None:
        self._raw = connection

    @property
    def connection(self) -> object:
        return self._raw

    @property
    def identity_holder(self) -> object:
        return self._raw

    async def prepare(self) -> None:
        """With autocommit off every statement belongs to a transaction."""
        if self._raw.get_autocommit() and not self._raw.get_transaction_status():
            raise TransactionRequired(
                "the bound asyncmy connection is in no transaction: begin one (`await connection.begin()`), turn "
                "autocommit off, or use ox.transaction()"
            )

    async def execute(self, step: Step) -> Result:
        text, names = step.statement.format
        cursor = self._raw.cursor(QuietCursor)
        try:
            if step.many is not None:
                await cursor.executemany(text, [tuple(row[name] for name in names) for row in step.many])
                return Result((), cursor.rowcount)
            await cursor.execute(text, tuple(step.values[name] for name in names))
            if cursor.description is None:
                return Result((), cursor.rowcount)
            rows = await cursor.fetchall()
        except DRIVER_ERRORS as error:
            raise classify(error) from error
        except UnicodeError as error:
            if not isinstance(error, UnicodeEncodeError):
                self._raw.close()
            raise garbled(error) from error
        return Result(rows, len(rows))

    def abandon(self) -> None:
        self._raw.close()

    def is_gone(self) -> bool:
        return not self._raw.connected
