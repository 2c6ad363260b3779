"""Cuts a stream of calls into chunks of checked requests, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any, Final

from oxpull_async.clock import Clock
from oxpull_async.enqueueing.requests import Request, make_request_of
from oxpull_async.options import Unique
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call

CHUNK_CALLS: Final = 2000
CHUNK_CHARACTERS: Final = 2_000_000


async def chunks_of(
    task: AnyTask,
    calls: Iterable[Call | Sequence[Any]] | AsyncIterable[Call | Sequence[Any]],
    *,
    settings: Settings,
    unique: Unique | None,
    clock: Clock,
) -> AsyncIterator[list[Request]]:
    """Chunks in the order of the calls. Raises: InvalidArguments naming the call's index."""
    chunk: list[Request] = []
    characters = index = 0
    at = clock.now()
    stream = calls if isinstance(calls, AsyncIterable) else _asynchronous(calls)
    async for item in stream:
        request = make_request_of(task, item, index, settings=settings, unique=unique, now=at)
        index += 1
        chunk.append(request)
        characters += len(request.task.args) + len(request.task.kwargs)
        if len(chunk) >= CHUNK_CALLS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters, at = [], 0, clock.now()
    if chunk:
        yield chunk


async def _asynchronous(calls: Iterable[Call | Sequence[Any]]) -> AsyncIterator[Call | Sequence[Any]]:
    for call in calls:
        yield call
