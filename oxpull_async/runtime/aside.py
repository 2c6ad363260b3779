"""Services in a thread with an event loop of its own: they go on while the host's loop is blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

from oxpull_async.runtime.roster import Roster
from oxpull_async.runtime.service import Service


class Aside:
    """A ``Member`` of a supervisor whose services run in another thread. It ends with its host's loop at the latest."""

    longest_stop: float = 2.0

    def __init__(self, services: Sequence[Service], roster: Roster, close: Callable[[], Awaitable[None]]) -> None:
        self._services = services
        self._roster = roster
        self._close = close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Work until stopped."""
        ended = asyncio.Event()
        host = asyncio.get_running_loop()
        thread = threading.Thread(target=self._main, args=(host, ended), name="oxpull_async leases", daemon=True)
        thread.start()
        with ExitStack() as stack:
            for service in self._services:
                stack.enter_context(self._roster.present(service))
            stack.callback(self.stop)
            await ended.wait()

    def stop(self) -> None:
        """End soon."""
        with self._lock:
            self._is_stopping = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop_services)

    def set(self, event: asyncio.Event) -> None:
        """Set an event that a service waits for; without effect before its thread runs and after."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(event.set)

    def _main(self, host: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        try:
            asyncio.run(self._work(host))
        finally:
            if not host.is_closed():
                host.call_soon_threadsafe(ended.set)

    async def _work(self, host: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._is_stopping:
                self._stop_services()
        try:
            watching = asyncio.create_task(self._end_with(host))
            await asyncio.gather(*(service.run() for service in self._services))
            watching.cancel()
        finally:
            with self._lock:
                self._loop = None
            await self._close()

    async def _end_with(self, host: asyncio.AbstractEventLoop) -> None:
        while not host.is_closed():  # noqa: ASYNC110 - a loop that is closed sets no event
            await asyncio.sleep(1)
        self._stop_services()

    def _stop_services(self) -> None:
        for service in self._services:
            service.stop()
