"""A wire between a caller and its server that counts round trips, and one that counts a SQLite thread's hops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

CHUNK = 65536


class Wire:
    """A TCP proxy in front of the server of a URL. A round trip begins whenever the client sends after an answer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._server = (parts.hostname, parts.port)
        self._url = url
        self._listener: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._client_spoke_last = False
        self.trips = 0
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        """The same database, through the wire."""
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        return self._url.replace(f"{self._server[0]}:{self._server[1]}", f"127.0.0.1:{port}")

    def silence(self) -> None:
        """Take what is sent, pass nothing on, and close nothing."""
        self._flows.clear()

    def restore(self) -> None:
        """Pass on what was sent, and what will be."""
        self._flows.set()

    async def __aenter__(self) -> Wire:
        self._listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server)
            async with _closing(writer), _closing(server_writer):
                await asyncio.gather(
                    self._pump(reader, server_writer, from_client=True),
                    self._pump(server_reader, writer, from_client=False),
                )
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._pumps.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool) -> None:
        while data := await reader.read(CHUNK):
            self.trips += from_client and not self._client_spoke_last
            self._client_spoke_last = from_client
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


class Hops:
    """How often an aiosqlite connection hands something to its thread."""

    def __init__(self, connection: Any) -> None:
        self.trips = 0
        execute = connection._execute

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.trips += 1
            return await execute(*args, **kwargs)

        connection._execute = counted


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
