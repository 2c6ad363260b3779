"""A Litestar service with its queue as a plugin."""

from typing import Any

from litestar import Litestar, post
from litestar.params import FromPath

from oxpull_async import Oxpull
from oxpull_async.integrations.litestar import OxpullPlugin, Queue

ox = Oxpull()


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    return f"invoice for order {order_id} sent"


@post("/orders/{order_id:int}/invoice", status_code=202)
async def invoice(order_id: FromPath[int], queue: Queue) -> dict[str, Any]:
    result = await queue.enqueue(send_invoice, order_id)
    return {"task": str(result.id), "created": result.created}


app = Litestar([invoice], plugins=[OxpullPlugin(ox)])
