"""Hints from process to process, on engines that have them: there may be something to claim."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final
from uuid import UUID

import anyio

from oxpull_async._links import Listener
from oxpull_async.exceptions import NotOpen, OxpullError
from oxpull_async.ports import Store
from oxpull_async.runtime.hints import CancelHints, ReadyHints
from oxpull_async.settings import Settings
from oxpull_async.telemetry import log

_QUIET_SECONDS: Final = 0.02
"""How long nothing is told after something was; whatever is to be told meanwhile is told after it."""
_DRAIN_SECONDS: Final = 1.0
_PING_SECONDS: Final = 30.0
_READY: Final = "ready"
_SEALED: Final = "sealed"
_CANCELLED: Final = "cancelled"
_IDS_IN_A_WORD: Final = 100
_HEX: Final = 32


class Announcer:
    """Tells other processes what they'd like to know, after its commit and beside the work: it's but hints.

    Of new rows not more often than is of use.
    """

    def __init__(self, store: Callable[[], Store], settings: Settings) -> None:
        self._token = secrets.token_hex(8)
        self._store = store
        self._settings = settings
        self._telling: asyncio.Task[None] | None = None
        self._is_due = False
        self._hurry = asyncio.Event()
        self.cancels: CancelHints = CancelHints()
        """What is told of cancelled rows, here or by another process."""
        self._others: set[asyncio.Task[None]] = set()

    @property
    def word(self) -> str:
        """What this process says; one that was forked from it says something else."""
        return f"{_READY}{self._token}x{os.getpid()}"

    def announce(self) -> None:
        """Rows were committed: tell of them now or soon. Costs the caller nothing."""
        self._is_due = True
        if not self._settings.notify or self._is_telling():
            return
        try:
            store = self._store()
        except NotOpen:  # closed since the commit: pollers find the rows
            return
        if store.capabilities.notifications:
            self._hurry = asyncio.Event()  # one belongs to the event loop that first waits for it
            self._telling = asyncio.get_running_loop().create_task(self._tell(store), name="oxpull_async notify")

    def sealed(self, batch_id: UUID) -> None:
        """This batch was sealed: whoever settles its members would like to know. Costs the caller nothing."""
        self._tell_beside(_SEALED + batch_id.hex)

    def cancelled(self, task_ids: Sequence[UUID]) -> None:
        """These rows were cancelled: a worker may be at one of them. Costs the caller nothing."""
        self.cancels.cancelled(task_ids)
        for start in range(0, len(task_ids), _IDS_IN_A_WORD):
            part = task_ids[start : start + _IDS_IN_A_WORD]
            self._tell_beside(_CANCELLED + "".join(task_id.hex for task_id in part))

    def _is_telling(self) -> bool:
        telling = self._telling
        return telling is not None and not telling.done() and not telling.get_loop().is_closed()

    async def drain(self) -> None:
        """Have everything told, within a second."""
        here = asyncio.get_running_loop()
        telling = [task for task in (*self._others, self._telling) if task is not None and task.get_loop() is here]
        if telling:
            self._hurry.set()
            await asyncio.wait(telling, timeout=_DRAIN_SECONDS)
            self._hurry.clear()

    def _tell_beside(self, word: str) -> None:
        try:
            store = self._store()
        except NotOpen:
            return
        if self._settings.notify and store.capabilities.notifications:
            telling = asyncio.get_running_loop().create_task(self._tell_one(store, word))
            self._others.add(telling)
            telling.add_done_callback(self._others.discard)

    async def _tell_one(self, store: Store, word: str) -> None:
        try:
            await store.notify(word)
        except OxpullError as error:  # it's but a hint
            log(logging.DEBUG, "notify_failed", f"other processes couldn't be told something: {error}", error=error)

    async def _tell(self, store: Store) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await store.notify(self.word)
                with anyio.move_on_after(_QUIET_SECONDS):
                    await self._hurry.wait()
        except OxpullError as error:  # it's but a hint
            log(logging.DEBUG, "notify_failed", f"other processes couldn't be told of new rows: {error}", error=error)
        finally:
            self._telling = None


class WakeupListener:
    """Passes on to the workers of this process what another one has told. One look at the connection per turn."""

    def __init__(
        self, store: Store, hints: ReadyHints, announcer: Announcer, on_sealed: Callable[[UUID], None]
    ) -> None:
        self.lost: asyncio.Event = asyncio.Event()
        """To be the service's wake-up: set when the connection is gone."""
        self._store = store
        self._hints = hints
        self._own_word = announcer.word
        self._cancels = announcer.cancels
        self._on_sealed = on_sealed
        self._connection = AsyncExitStack()
        self._listener: Listener | None = None

    async def turn(self) -> float:
        """Connect, or see whether the connection still is one."""
        try:
            if self._listener is None:
                self._listener = await self._connection.enter_async_context(
                    self._store.listener(self._hear, self.lost.set)
                )
                self._hints.wake()  # whatever was told before nobody has heard
            else:
                await self._listener.ping()
        except BaseException:
            await self.close()
            raise
        return _PING_SECONDS

    async def close(self) -> None:
        """Let go of the connection."""
        self._listener = None
        await self._connection.aclose()

    def _hear(self, word: str) -> None:
        if word.startswith(_READY) and word != self._own_word:
            self._hints.wake()
        elif word.startswith(_SEALED):
            with suppress(ValueError):  # somebody else's word
                self._on_sealed(UUID(word.removeprefix(_SEALED)))
        elif word.startswith(_CANCELLED):
            with suppress(ValueError):
                self._cancels.cancelled(_ids(word.removeprefix(_CANCELLED)))


def _ids(word: str) -> list[UUID]:
    return [UUID(word[start : start + _HEX]) for start in range(0, len(word), _HEX)]
