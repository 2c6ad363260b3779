"""A FastAPI service that enqueues, and works in the same process."""

from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException

from oxpull_async import Oxpull, TaskResult, TaskResultDoesNotExist

ox = Oxpull()  # reads OXPULL_DATABASE_URL when it is opened


@ox.task(unique=True, max_attempts=5)
async def send_invoice(order_id: int) -> str:
    return f"invoice for order {order_id} sent"


app = FastAPI(lifespan=ox.lifespan)


@app.post("/orders/{order_id}/invoice", status_code=202)
async def invoice(order_id: int) -> dict[str, Any]:
    result = await send_invoice.enqueue(order_id)
    return {"task": result.id, "created": result.created}


@app.get("/tasks/{task_id}")
async def task(task_id: UUID) -> TaskResult:
    try:
        return await ox.get_result(task_id)
    except TaskResultDoesNotExist as error:
        raise HTTPException(404, "no such task") from error
