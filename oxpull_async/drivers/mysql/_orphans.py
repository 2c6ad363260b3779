"""Ends statements that the server goes on running although their caller has gone.

The server notices a closed socket only when a statement ends. Within a
transaction it then rolls back; but a statement may hold locks until then, or
wait for some and take effect later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

_SECONDS = 2.0


class Orphans:
    """Kills them in the background, as well as it can, over connections of its own."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._tasks: set[asyncio.Task[None]] = set()
        self.threads_are_the_servers = True
        """False behind a proxy with numbers of its own: there a KILL would hit somebody else."""

    def end(self, thread: int) -> None:
        """Have the server end a thread; returns at once."""
        if not self.threads_are_the_servers:
            return
        task = asyncio.get_running_loop().create_task(self._kill(thread))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until every one of them is dealt with."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def forget(self) -> None:
        """Give up on those that are left."""
        for task in self._tasks:
            task.cancel()

    async def _kill(self, thread: int) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                raw = await self._connect()
                try:
                    await raw.cursor().execute(f"KILL {thread:d}")
                finally:
                    raw.close()
        except Exception:  # noqa: S110 - most often the thread has ended by itself; nothing depends on this
            pass
