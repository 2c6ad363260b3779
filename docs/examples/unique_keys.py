"""What makes two calls the same: all arguments, some of them, or whatever a function says."""

import asyncio

from oxpull_async import Oxpull, Unique

ox = Oxpull.in_memory()


@ox.task(unique=True)
async def by_all_arguments(order_id: int, reason: str = "paid") -> None: ...


@ox.task(unique=Unique(by=("order_id",)))
async def by_one_parameter(order_id: int, reason: str = "paid") -> None: ...


@ox.task(unique=Unique(by=lambda order_id, reason="paid": order_id % 10))
async def by_function(order_id: int, reason: str = "paid") -> None: ...


async def main() -> None:
    async with ox:
        for task in (by_all_arguments, by_one_parameter, by_function):
            calls = [(1,), (1, "paid"), (1, "late"), (11,)]
            results = await task.enqueue_many(calls)
            print(task.path, [result.created for result in results])


if __name__ == "__main__":
    asyncio.run(main())
