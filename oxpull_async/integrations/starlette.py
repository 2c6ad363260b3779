"""For Starlette, and what is built on it: progress as server-sent events, and an endpoint that tells of health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oxpull_async.app import Oxpull
from oxpull_async.exceptions import NotOpen

_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect the events
}


class Report(Protocol):
    """What a check finds: a pydantic model that says whether all is well."""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        ...

    def model_dump_json(self) -> str:
        """The whole report."""
        ...


def queue_of(request: Request) -> Oxpull:
    """The ``Oxpull`` that the application's lifespan has put into its state. Raises: NotOpen if there is none."""
    ox = getattr(request.state, "ox", None)
    if not isinstance(ox, Oxpull):
        raise NotOpen(
            "this application's lifespan offers no Oxpull: give the application lifespan=ox.lifespan, or have a "
            'lifespan of its own yield {"ox": ox}. A mounted application has no lifespan: the outermost needs it; '
            "and test clients run it only if they are told to"
        )
    return ox


def event_stream(
    updates: AsyncIterable[BaseModel], *, event: str | None = None, end: str | None = None, keepalive: float = 15.0
) -> StreamingResponse:
    """Each model as a server-sent event, until there are no more: ``return event_stream(batch.watch())``.

    ``event`` names the events, so that a browser's ``addEventListener`` can
    tell them apart. ``end`` names an event that follows the last one: a
    browser opens a stream that just ends anew, and should be told to close it.

    After ``keepalive`` seconds of silence a comment is sent,
    which keeps proxies from closing the connection and finds a client that has
    gone. Then, and when the client is seen to go, ``updates`` is closed.
    """
    return StreamingResponse(_events(updates, event, end, keepalive), media_type="text/event-stream", headers=_HEADERS)


def health_endpoint(check: Callable[[], Awaitable[Report]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for probes: ``Route("/health", health_endpoint(ox.health))``.

    Answers with the report as JSON, 200 if all is well and 503 if not.
    """

    async def health(request: Request) -> Response:
        return await health_response(check)

    return health


async def health_response(check: Callable[[], Awaitable[Report]]) -> Response:
    """The answer of ``health_endpoint``. An Oxpull that isn't open is not well."""
    try:
        report = await check()
    except NotOpen as error:
        return Response(_NotOpenReport(problem=str(error)).model_dump_json(), 503, media_type="application/json")
    return Response(report.model_dump_json(), 200 if report.ok else 503, media_type="application/json")


class _NotOpenReport(BaseModel):
    ok: bool = False
    problem: str


async def _events(
    updates: AsyncIterable[BaseModel], event: str | None, end: str | None, keepalive: float
) -> AsyncIterator[str]:
    """A task of its own reads the updates, so that a silence can be noticed without interrupting them."""
    mailbox: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
    reader = asyncio.get_running_loop().create_task(_read(updates, event, mailbox), name="oxpull_async event stream")
    try:
        while True:
            message = await _next(mailbox, reader, keepalive)
            if message is None:
                break
            yield message
    finally:
        reader.cancel()
        await asyncio.wait([reader])
    if not reader.cancelled():
        reader.result()  # what went wrong with the updates
    if end is not None:
        yield f"event: {end}\ndata: {{}}\n\n"


async def _read(updates: AsyncIterable[BaseModel], event: str | None, mailbox: asyncio.Queue[str]) -> None:
    iterator = aiter(updates)
    try:
        async for update in iterator:
            await mailbox.put(_message(update, event))
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


async def _next(mailbox: asyncio.Queue[str], reader: asyncio.Task[None], keepalive: float) -> str | None:
    """The next message, a comment after a silence, None at the end."""
    getting: asyncio.Task[Any] = asyncio.get_running_loop().create_task(mailbox.get())
    try:
        await asyncio.wait([getting, reader], timeout=keepalive, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return str(getting.result())
    finally:
        getting.cancel()
    if not reader.done():
        return ": still there\n\n"
    return mailbox.get_nowait() if not mailbox.empty() else None


def _message(update: BaseModel, event: str | None) -> str:
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {update.model_dump_json()}\n\n"
