"""For FastAPI: the queue, and the queue in the request's own transaction, as dependencies; a router for probes.

The application is told ``lifespan=ox.lifespan``, or its own lifespan yields
``{"ox": ox}``; see ``oxpull_async.integrations.starlette`` for the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from oxpull_async.app import Oxpull
from oxpull_async.batches.bound import BoundOxpull
from oxpull_async.integrations.starlette import Report, event_stream, health_response, queue_of

__all__ = ["BoundOxpull", "Queue", "bound_to", "event_stream", "health_router"]


def _queue(request: Request) -> Oxpull:
    return queue_of(request)


Queue: TypeAlias = Annotated[Oxpull, Depends(_queue)]
"""A parameter of this type gets the application's ``Oxpull``."""


def bound_to(session: Any) -> Callable[..., BoundOxpull]:
    """A dependency that gives the queue bound to the request's session, or to a driver's connection.

    ``session`` is the annotation under which your endpoints have the session,
    so that both are one and the same::

        Session = Annotated[AsyncSession, Depends(open_session, scope="function")]
        BoundQueue = Annotated[BoundOxpull, Depends(bound_to(Session))]

    With ``scope="function"`` what ``open_session`` does after its ``yield``,
    the commit, is done before the response is sent, and an error there is the
    client's answer. FastAPI's default is after the response, when the client
    has been told already of a row that may still be rolled back.
    """

    def bound(queue: Oxpull, session: Any) -> BoundOxpull:
        return queue.bind(session)

    bound.__annotations__ = {"queue": Queue, "session": session, "return": BoundOxpull}
    return bound


def health_router(check: Callable[[], Awaitable[Report]], *, path: str = "/health") -> APIRouter:
    """A router for probes: ``app.include_router(health_router(ox.health))``.

    Answers with the report as JSON, 200 if all is well and 503 if not.
    """
    router = APIRouter(tags=["health"])

    @router.get(path)
    async def health() -> Response:
        return await health_response(check)

    return router
