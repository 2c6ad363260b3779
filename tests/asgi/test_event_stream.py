"""``event_stream``: models as server-sent events, silences, clients that go, updates that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from oxpull_async.integrations.starlette import event_stream
from tests.eventually import eventually


class Progress(BaseModel):
    done: int


class Updates:
    """Gives what is put into it; notes that it was closed."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[Progress]:
        try:
            while (update := await self.given.get()) is not None:
                if isinstance(update, Exception):
                    raise update
                yield update
        finally:
            self.is_closed = True


@pytest.fixture
def updates() -> Updates:
    return Updates()


async def test_each_model_is_an_event_and_the_end_is_the_end(updates: Updates):
    for update in (Progress(done=1), Progress(done=2), None):
        updates.given.put_nowait(update)

    response = event_stream(updates)

    assert [part async for part in response.body_iterator] == ['data: {"done":1}\n\n', 'data: {"done":2}\n\n']
    assert response.media_type == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    assert updates.is_closed


async def test_a_last_event_tells_a_browser_to_close_the_stream(updates: Updates):
    updates.given.put_nowait(Progress(done=1))
    updates.given.put_nowait(None)

    assert [part async for part in event_stream(updates, end="complete").body_iterator] == [
        'data: {"done":1}\n\n',
        "event: complete\ndata: {}\n\n",
    ]


async def test_events_may_have_a_name(updates: Updates):
    updates.given.put_nowait(Progress(done=1))
    updates.given.put_nowait(None)

    assert [part async for part in event_stream(updates, event="progress").body_iterator] == [
        'event: progress\ndata: {"done":1}\n\n'
    ]


async def test_a_silence_is_filled_and_costs_no_update(updates: Updates):
    parts = aiter(event_stream(updates, keepalive=0.02).body_iterator)

    assert await anext(parts) == await anext(parts) == ": still there\n\n"
    updates.given.put_nowait(Progress(done=1))
    while (part := await anext(parts)) == ": still there\n\n":
        pass
    assert part == 'data: {"done":1}\n\n'
    updates.given.put_nowait(None)
    assert {part async for part in parts} <= {": still there\n\n"}


async def test_what_goes_wrong_with_the_updates_is_raised_after_those_before(updates: Updates):
    updates.given.put_nowait(Progress(done=1))
    updates.given.put_nowait(LookupError("gone"))
    parts = aiter(event_stream(updates).body_iterator)

    assert await anext(parts) == 'data: {"done":1}\n\n'
    with pytest.raises(LookupError):
        await anext(parts)


async def test_the_updates_are_closed_when_the_client_goes(updates: Updates):
    begun = asyncio.Event()
    before = asyncio.all_tasks()

    async def receive() -> dict[str, Any]:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            begun.set()

    updates.given.put_nowait(Progress(done=1))
    await event_stream(updates)({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)

    async def nothing_is_left() -> None:
        assert updates.is_closed
        assert asyncio.all_tasks() == before

    await eventually(nothing_is_left)


async def test_a_slow_client_holds_the_updates_back(updates: Updates):
    for done in range(10):
        updates.given.put_nowait(Progress(done=done))
    parts = aiter(event_stream(updates).body_iterator)

    await anext(parts)
    await asyncio.sleep(0)

    assert updates.given.qsize() >= 6
    await parts.aclose()  # type: ignore[attr-defined]
    assert updates.is_closed
