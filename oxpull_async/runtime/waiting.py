"""Waiting for the first of several things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio


async def first_of(*waits: Callable[[], Awaitable[Any]]) -> None:
    """Return when one of the waits has ended; the others are cancelled."""
    async with anyio.create_task_group() as group:

        async def end_with(wait: Callable[[], Awaitable[Any]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(end_with, wait)
