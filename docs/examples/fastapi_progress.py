"""What becomes of a task, as server-sent events: `curl -N localhost:8000/tasks/<id>/events`."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from oxpull_async import Oxpull, TaskResult
from oxpull_async.integrations.fastapi import Queue, event_stream, health_router

ox = Oxpull()


@ox.task
async def render(pages: int) -> str:
    await asyncio.sleep(pages * 0.01)
    return f"{pages} pages"


app = FastAPI(lifespan=ox.lifespan)
app.include_router(health_router(ox.health))


@app.post("/renderings")
async def start(pages: int) -> UUID:
    return (await render.enqueue(pages)).id


@app.get("/tasks/{task_id}/events")
async def events(task_id: UUID, queue: Queue) -> StreamingResponse:
    return event_stream(states(await queue.get_result(task_id)), event="state")


async def states(result: TaskResult) -> AsyncIterator[TaskResult]:
    yield result
    while not result.is_finished:
        await asyncio.sleep(0.2)
        yield await result.refresh()
