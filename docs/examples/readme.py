import asyncio

from oxpull_async import Oxpull, Worker

ox = Oxpull()  # the database is what OXPULL_DATABASE_URL says


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    return f"invoice for order {order_id}"


async def main() -> None:
    async with ox:
        await ox.migrate()
        first = await send_invoice.enqueue(42)
        again = await send_invoice.enqueue(42)  # the same task: it is pending
        print(again.id == first.id, again.created)  # True False
        async with ox.running(worker=Worker(ox)):
            print(await first.wait(timeout=10))  # invoice for order 42


if __name__ == "__main__":
    asyncio.run(main())
