"""The tutorial's first program: three calls, two tasks."""

import asyncio

from shop import ox, send_invoice


async def main() -> None:
    async with ox:
        await ox.migrate()
        for order_id in (41, 42, 42):
            result = await send_invoice.enqueue(order_id)
            print(order_id, result.id, "new" if result.created else "pending")


asyncio.run(main())
