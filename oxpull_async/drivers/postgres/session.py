"""An asyncpg connection of the caller's."""

from __future__ import annotations

from typing import Any

import asyncpg

from oxpull_async.drivers._joined.session import StepwiseRunner
from oxpull_async.drivers._procedure import Result, Step
from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, classify, is_gone
from oxpull_async.exceptions import ConnectionLost, TransactionRequired


class AsyncpgSession(StepwiseRunner):
    """Raw, or the proxy that a pool hands out."""

    engine = "postgres"

    def __init__(self, connection: Any, timeout: float | None = None) -> None:
        self._raw = connection
        self._timeout = timeout
        """In seconds for each statement; None leaves it to the connection."""

    @property
    def connection(self) -> object:
        # A pool's proxy is made anew at each acquire; the connection below it is the one that counts.
        return getattr(self._raw, "_con", None) or self._raw

    @property
    def identity_holder(self) -> object:
        return self.connection

    async def prepare(self) -> None:
        try:
            if self._raw.is_closed():
                raise ConnectionLost("the bound asyncpg connection is closed")
            in_transaction = self._raw.is_in_transaction()
        except asyncpg.InterfaceError as error:  # a proxy whose connection was given back to its pool, or was lost
            raise TransactionRequired(f"the bound asyncpg connection can't be used (any more): {error}") from error
        if not in_transaction:
            raise TransactionRequired(
                "the bound asyncpg connection is in no transaction: enqueue inside "
                "`async with connection.transaction():`, or use ox.transaction()"
            )

    async def execute(self, step: Step) -> Result:
        text, names = step.statement.numeric_dollar
        try:
            if not names and not text.startswith("SELECT"):
                # The simple protocol: no statement to prepare for each savepoint.
                await self._raw.execute(text, timeout=self._timeout)
                return Result((), 0)
            rows = await self._raw.fetch(text, *[step.values[name] for name in names], timeout=self._timeout)
        except DRIVER_ERRORS as error:
            raise classify(error, closed=is_gone(self._raw)) from error
        return Result(rows, len(rows))

    def abandon(self) -> None:
        self._raw.terminate()

    def is_gone(self) -> bool:
        return is_gone(self._raw)
