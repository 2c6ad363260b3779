"""An ASGI lifespan around Django, which has none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def with_lifespan(application: AsgiApp, lifespan: Callable[[Any], AbstractAsyncContextManager[Any]]) -> AsgiApp:
    """The ASGI application within ``lifespan``: ``with_lifespan(get_asgi_application(), ox.lifespan)``.

    The server opens the Oxpull before the first request, and closes it after
    the last one.
    """

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(lifespan(application), receive, send)
        else:
            await application(scope, receive, send)

    return around


async def _live(life: AbstractAsyncContextManager[Any], receive: Receive, send: Send) -> None:
    phase = "startup"
    await receive()
    try:
        async with life:
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except Exception as error:
        await send({"type": f"lifespan.{phase}.failed", "message": f"{type(error).__name__}: {error}"})
        raise
    await send({"type": "lifespan.shutdown.complete"})
