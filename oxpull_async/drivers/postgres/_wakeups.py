"""LISTEN and NOTIFY: words from process to process, which needn't arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, classify, is_gone
from oxpull_async.drivers.postgres.pool import Alone, Pool

_CHANNEL = load_statements(__package__, "wakeups.sql")["channel"].text
# Nobody waits for the disk because of a hint. In one round trip.
_NOTIFY = "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify(({channel}), '{word}'); COMMIT"


class Listening:
    """A connection that listens."""

    def __init__(self, connection: Alone) -> None:
        self._connection = connection

    async def ping(self) -> None:
        """Raises: ConnectionLost."""
        await self._connection.command("SELECT 1")


class Wakeups:
    """Listens over a connection outside of the pool, and tells over one of the pool's."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def listening(self, heard: Callable[[str], None], lost: Callable[[], None]) -> AsyncIterator[Listening]:
        """From now on until the block's end, or until the connection is lost."""
        async with self._pool.alone() as connection:
            raw = connection.raw
            try:
                channel = await raw.fetchval(_CHANNEL)
                await raw.add_listener(channel, lambda _connection, _pid, _channel, word: heard(word))
            except DRIVER_ERRORS as error:
                raise classify(error, closed=is_gone(raw)) from error

            def tell(_: Any) -> None:
                lost()

            raw.add_termination_listener(tell)
            try:
                yield Listening(connection)
            finally:
                raw.remove_termination_listener(tell)

    async def notify(self, word: str) -> None:
        """In a transaction of its own."""
        assert word.isalnum()
        async with self._pool.connection() as connection:
            await connection.command(_NOTIFY.format(channel=_CHANNEL, word=word))
