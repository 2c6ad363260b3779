"""A service for real servers: it enqueues, works, and writes down what it leaves behind.

``OXPULL_DATABASE_URL`` says where its queue is, ``SERVICE_LOG`` where it writes, a JSON line for each event.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from oxpull_async import Oxpull, Worker
from oxpull_async.integrations.fastapi import Queue, event_stream, health_router

ox = Oxpull(lease=2, pool_size=3)
log = Path(os.environ["SERVICE_LOG"])


def note(event: str, **facts: Any) -> None:
    with log.open("a") as file:
        file.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n")


@ox.task
async def add(number: int) -> int:
    note("ran", number=number)
    return number + 1


@ox.task
async def hold(seconds: float) -> str:
    note("holding")
    await asyncio.sleep(seconds)
    return "held"


@ox.task
async def whole(name: str) -> None:
    note("whole", name=name)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    before = asyncio.all_tasks()
    async with ox.running(worker=Worker(ox, concurrency=4, poll_interval=0.2, shutdown_timeout=10)):
        note("started")
        yield {"ox": ox}
    tasks = [repr(task) for task in asyncio.all_tasks() - before if "oxpull" in repr(task)]
    threads = [thread.name for thread in threading.enumerate() if "oxpull" in thread.name.lower()]
    note("stopped", tasks=tasks, threads=threads, is_open=ox.is_open)


app = FastAPI(lifespan=lifespan)
app.include_router(health_router(ox.health))


@app.post("/add/{number}")
async def post_add(number: int, queue: Queue) -> int:
    result = await queue.enqueue(add, number)
    value: int = await result.wait(timeout=30)
    return value


@app.post("/batch/{name}")
async def post_batch(name: str, queue: Queue) -> str:
    async with queue.batches.create(name, on_complete=whole, on_complete_args=[name]) as batch:
        await batch.add_many(add, [(number,) for number in range(10)])
    return str(batch.id)


@app.post("/hold/{seconds}")
async def post_hold(seconds: float) -> str:
    return str((await hold.enqueue(seconds)).id)


@app.get("/slow/{seconds}")
async def slow(seconds: float) -> str:
    note("serving")
    await asyncio.sleep(seconds)
    return "served"


@app.post("/break")
async def break_the_loops() -> None:
    """From now on every claim fails by an error that nobody expects."""

    async def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken on purpose")

    setattr(ox.store, "claim", fail)  # noqa: B010


class Tick(BaseModel):
    number: int


@app.get("/events")
async def events() -> Any:
    async def ticks() -> AsyncIterator[Tick]:
        for number in range(1_000_000):
            yield Tick(number=number)
            await asyncio.sleep(0.05)

    return event_stream(ticks())
