"""The tutorial's shop: one task, in the file that a worker is pointed at."""

import asyncio

from oxpull_async import Oxpull

ox = Oxpull("sqlite:///shop.db")


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    await asyncio.sleep(0.2)  # stands for the mail server
    return f"invoice for order {order_id} sent"
