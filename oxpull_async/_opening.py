"""What of an ``Oxpull`` exists only while it's open, and the opening and closing of it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

import anyio

from oxpull_async.drivers import SqlStore, open_store
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.enqueueing.policies import Policies
from oxpull_async.enqueueing.substitutes import Substitutes
from oxpull_async.exceptions import InvalidSettings, NotOpen
from oxpull_async.settings import Settings, settings_from_environment

_inherited: Final[list[object]] = []
"""What was open in the process that was forked. Never collected: the copies share sockets, and what an event loop
watches, with the originals, whose owner would feel their end."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The store and the desk, in the process and the event loop that opened them."""

    store: SqlStore
    desk: Desk
    policies: Policies
    loop: asyncio.AbstractEventLoop
    process: int

    @property
    def is_lost(self) -> bool:
        """Whether its event loop can't be come back to: closed, or left in the process that was forked."""
        return self.process != os.getpid() or self.loop.is_closed()

    def require_here(self) -> Opened:
        """Itself. Raises: NotOpen in any event loop but its own."""
        if self.process != os.getpid():
            raise NotOpen("this Oxpull was opened before this process was forked; open it anew here")
        if self.loop is not asyncio.get_running_loop():
            raise NotOpen(
                "this Oxpull was opened in another event loop: close it there, and open it in the loop that uses it; "
                "or from a thread of that loop's, have it run the call, with anyio.from_thread.run(task.enqueue, …)"
            )
        return self


class Opening:
    """Opens and closes, any number of times, in one event loop at a time."""

    def __init__(self, settings: Settings, substitutes: Substitutes) -> None:
        self.migrates: bool = False
        """Whether opening creates the tables too."""
        self._settings = settings
        self._substitutes = substitutes
        self._opened: Opened | None = None
        self._lock: asyncio.Lock | None = None
        self._lock_loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        self._leave_lost_behind()
        return self._opened is not None

    async def open(self) -> None:
        """Connect; if it's open already, do nothing.

        Raises: NotOpen if it's open in another event loop, InvalidSettings, ConnectionLost, WrongDatabase.
        """
        _require_asyncio()
        async with self._one_at_a_time():
            if self.is_open:
                self.require()
                return
            made = await self._connect()
            if self.is_open:  # by another thread, meanwhile
                await made.store.close()
                self.require()
            self._opened = made

    async def close(self) -> None:
        """Let shared statements end, and close every connection, within bounds. Raises: NotOpen in another loop."""
        if not self.is_open:
            return
        opened, self._opened = self.require(), None
        with anyio.move_on_after(self._settings.close_timeout, shield=True):
            await opened.desk.drain()
        await opened.store.close()

    def require(self) -> Opened:
        """What is open. Raises: NotOpen."""
        opened = self._opened
        if opened is None:
            raise NotOpen(
                "this Oxpull is not open. Use `async with ox:`, or give your ASGI app lifespan=ox.lifespan "
                "(in tests without a running lifespan, open it yourself)"
            )
        return opened.require_here()

    def _leave_lost_behind(self) -> None:
        """Nobody can close it here: the connections of a closed loop end when they are collected."""
        opened = self._opened
        if opened is not None and opened.is_lost:
            self._opened = None
            if opened.process != os.getpid():
                _inherited.append(opened)

    async def _connect(self) -> Opened:
        settings = self._settings
        url = self._substitutes.database or settings.database or settings_from_environment().get("database")
        if not url:
            raise InvalidSettings(
                "no database is set: give Oxpull a URL, such as Oxpull('sqlite:///queue.db'), "
                "or set OXPULL_DATABASE_URL"
            )
        store = open_store(url, settings)
        await store.open()
        try:
            if self.migrates or self._substitutes.database:
                await store.migrate()
        except BaseException:
            await store.close()
            raise
        # Together they leave a connection to those who wait for nobody.
        patient = max(1, settings.pool_size // 2)
        desk = Desk(store, patient=patient)
        policies = Policies(store, desk, patient=max(1, settings.pool_size - patient - 1))
        return Opened(store, desk, policies, asyncio.get_running_loop(), os.getpid())

    def _one_at_a_time(self) -> asyncio.Lock:
        """Made anew for each event loop, for a lock belongs to the loop that first waited on it."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock_loop is not loop:
            self._lock, self._lock_loop = asyncio.Lock(), loop
        return self._lock


def _require_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise NotOpen("oxpull_async runs on asyncio; its database drivers know no other event loop") from error
