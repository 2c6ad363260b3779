"""A TCP proxy in front of a server, on which one reply is lost: the server has done what it was asked, unheard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from urllib.parse import urlsplit

CHUNK = 65536


class CutWire:
    """Passes everything on until it's told which reply to lose; that connection ends with it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._server = (parts.hostname, parts.port)
        self._url = url
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = 0
        self._meanwhile: Callable[[], Awaitable[object]] | None = None
        self.is_cut = False

    @property
    def url(self) -> str:
        """The same database, through the wire."""
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        return self._url.replace(f"{self._server[0]}:{self._server[1]}", f"127.0.0.1:{port}")

    def cut_at(self, request: int, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Lose the reply to the nth request from now on, and let something happen before anybody learns of that."""
        self._left, self._meanwhile, self.is_cut = request, meanwhile, False

    async def __aenter__(self) -> CutWire:
        self._listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # cancelled: the test is over
            await self._converse(reader, writer)
        self._tasks.discard(task)

    async def _converse(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(*self._server)
        doomed = asyncio.Event()
        sending = asyncio.create_task(self._send(client, to_server, doomed))
        try:
            while data := await server.read(CHUNK):
                if doomed.is_set():
                    assert self._meanwhile is not None
                    to_server.close()  # what was not committed is rolled back
                    await self._meanwhile()
                    self.is_cut = True
                    return
                to_client.write(data)
                await to_client.drain()
        finally:
            sending.cancel()
            to_server.close()
            to_client.close()

    async def _send(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, doomed: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await client.read(CHUNK):
                self._left -= 1
                if self._left == 0:
                    doomed.set()
                to_server.write(data)
                await to_server.drain()
            to_server.write_eof()
