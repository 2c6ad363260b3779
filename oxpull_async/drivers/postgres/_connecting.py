"""Connecting with asyncpg, so that a cancel leaves nothing half done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import asyncpg

from oxpull_async._shield import shielded

_CANCELLED_SECONDS: Final = 1.0


async def connect(*args: Any, **kwargs: Any) -> Any:
    """As ``asyncpg.connect``.

    Between the socket's opening and the server's greeting asyncpg has a future
    that a cancel would leave behind with an error that nobody looks at, and
    asyncio reports it. So a cancel lets a connection come about, for a second
    at most, and closes it. A server that is silent for longer is met by the
    cancel while it's waited for, which asyncpg bears.
    """
    connecting: asyncio.Task[Any] = asyncio.get_running_loop().create_task(asyncpg.connect(*args, **kwargs))
    try:
        await asyncio.wait([connecting])
    except asyncio.CancelledError:
        connecting.add_done_callback(_drop)
        with suppress(TimeoutError, asyncio.CancelledError):
            await shielded(asyncio.wait([connecting]), within=_CANCELLED_SECONDS)
        connecting.cancel()
        raise
    return connecting.result()


def _drop(connecting: asyncio.Task[Any]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
