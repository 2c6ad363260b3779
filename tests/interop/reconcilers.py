"""Reconcilers of either side in processes that are killed at random, again and again."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from typing import Any

import anyio
from peers import Peer

from oxpull_async import Oxpull
from tests.integration.competitor import aside
from tests.integration.doomed import Doomed


class MortalPeer:
    """A reconciler of theirs, killed and started again."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.deaths = 0

    async def live_and_die(self) -> None:
        with anyio.CancelScope(shield=True):  # a cancel would leave it alive
            process = await self._peer.tell("reconcile_until_killed")
            await anyio.sleep(random.uniform(0.02, 0.5))
            os.kill(process, signal.SIGKILL)
            assert await self._peer.tell("was_killed", process)
        self.deaths += 1


class Mortal:
    """Two of our reconcilers in a process of their own, killed and started again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._doomed = Doomed()
        self._process: int | None = None
        self.deaths = 0

    async def live_and_die(self) -> None:
        self._process = await aside(self._doomed.start, reconcile_for_ever, self._url)
        await anyio.sleep(random.uniform(0.02, 0.5))
        os.kill(self._process, signal.SIGKILL)
        assert await aside(self._doomed.ended)
        self.deaths += 1

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        self._doomed.close()


async def reconcile_for_ever(url: str) -> None:
    """What the process does."""
    ox = Oxpull(url)
    for name in ("on_complete", "on_success"):
        declare(ox, name)

    async def passes() -> None:
        while True:
            await ox.batches.reconcile()

    async with ox, anyio.create_task_group() as group:
        group.start_soon(passes)
        group.start_soon(passes)


def declare(ox: Oxpull, name: str) -> None:
    """A task by the path of one of theirs."""

    async def callback(*args: Any, **kwargs: Any) -> None: ...

    callback.__module__, callback.__qualname__ = "django_project.tasks", name
    ox.task(callback)
