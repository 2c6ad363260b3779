"""A task that fails twice, is retried with a backoff of its own, and fails for good when that says so."""

import asyncio

from oxpull_async import Oxpull, TaskContext, TaskFailed, Worker

ox = Oxpull.in_memory()


class PaymentRefused(Exception):
    """No use in trying again."""


def backoff(error: Exception, result: object) -> float | None:
    return None if isinstance(error, PaymentRefused) else 0.05


@ox.task(max_attempts=5, backoff=backoff, takes_context=True)
async def charge(context: TaskContext, order_id: int) -> str:
    if order_id == 13:
        raise PaymentRefused("card expired")
    if context.attempt < 3:
        raise ConnectionError("the bank did not answer")
    return f"order {order_id} charged at attempt {context.attempt}"


async def main() -> None:
    async with ox, ox.running(worker=Worker(ox)):
        good, bad = await charge.enqueue(42), await charge.enqueue(13)
        print(await good.wait(timeout=5))
        try:
            await bad.wait(timeout=5)
        except TaskFailed as failure:
            print(failure.status, failure.errors[-1]["exception_class_path"])


if __name__ == "__main__":
    asyncio.run(main())
