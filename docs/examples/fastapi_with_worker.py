"""The same service with a worker inside it, for a deployment of one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_app import invoice, ox, task

from oxpull_async import Worker


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with ox:
        await ox.migrate()
        async with ox.running(worker=Worker(ox, concurrency=4)):
            yield


app = FastAPI(lifespan=lifespan)
app.post("/orders/{order_id}/invoice", status_code=202)(invoice)
app.get("/tasks/{task_id}")(task)
