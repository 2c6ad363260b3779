"""Lends connections out of asyncpg's pool, one of them without the way there and back."""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg

from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, classify, is_gone
from oxpull_async.exceptions import PoolTimeout

_RELEASE_SECONDS = 2.0


class Lender:
    """Keeps the connection that came back last at hand, for taking one from the pool costs as much as an INSERT.

    Nobody waits because of it: while somebody waits for the pool, nothing is
    kept. Only a connection that is known to be idle is.
    """

    def __init__(self, pool: asyncpg.Pool[Any], wait_seconds: float) -> None:
        self._pool = pool
        self._wait_seconds = wait_seconds
        self._spare: Any = None
        self._waiting = 0
        self._is_closing = False

    def spare(self) -> Any:
        """The connection at hand, if there is one that is good: None, and ``take`` finds another."""
        spare = self._spare
        if spare is None or is_gone(spare):
            return None
        self._spare = None
        return spare

    async def take(self) -> Any:
        """A connection. Raises: PoolTimeout, ConnectionLost."""
        if (good := self.spare()) is not None:
            return good
        lost, self._spare = self._spare, None
        if lost is not None:
            await self.give_back(lost)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=self._wait_seconds)
        except TimeoutError as error:
            raise PoolTimeout(
                f"no PostgreSQL connection became free within {self._wait_seconds:g} s; "
                "raise pool_size or shorten what holds the connections"
            ) from error
        except DRIVER_ERRORS as error:
            raise classify(error) from error
        finally:
            self._waiting -= 1

    def keep(self, connection: Any) -> bool:
        """Have it at hand for the next. What ran on it has ended well: no statement or transaction is left of it."""
        if self._spare is not None or self._waiting or self._is_closing:
            return False
        self._spare = connection
        return True

    async def give_back(self, connection: Any) -> None:
        """To the pool, which looks at what is left on it; a lost one it may have taken back by itself."""
        with contextlib.suppress(asyncpg.InternalClientError):
            await self._pool.release(connection, timeout=_RELEASE_SECONDS)

    async def close(self) -> None:
        """Give the spare one back and close the pool."""
        self._is_closing = True
        spare, self._spare = self._spare, None
        if spare is not None:
            await self.give_back(spare)
        await self._pool.close()

    def terminate(self) -> None:
        """Cut off every connection."""
        self._pool.terminate()
