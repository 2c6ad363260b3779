"""At most a hundred starts a minute towards the payment provider, and three an hour for each customer."""

import asyncio
from datetime import timedelta

from oxpull_async import Oxpull, RateLimit

ox = Oxpull.in_memory(
    rate_limits=[
        RateLimit(100, 60, queues=["payments"], name="provider"),
        RateLimit(3, timedelta(hours=1), tasks=["__main__.remind"], by="customer"),
    ]
)


@ox.task(queue_name="payments")
async def charge(order_id: int) -> None: ...


@ox.task
async def remind(customer: str) -> None:
    print("reminding", customer)


async def main() -> None:
    async with ox:
        await remind.enqueue_many([("ann",)] * 5 + [("bob",)])
        await ox.run_until_idle()
        (queue,) = await ox.stats.queues()
        print(queue.scheduled, "wait for their hour")


if __name__ == "__main__":
    asyncio.run(main())
