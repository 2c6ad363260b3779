"""Invoices of two nights, each a batch, with a report at the end of it."""

import asyncio

from oxpull_async import Oxpull

ox = Oxpull.in_memory()


@ox.task(max_attempts=1)
async def send_invoice(order_id: int) -> str:
    if order_id == 3:
        raise ValueError("no address")
    return f"invoice for order {order_id}"


@ox.task
async def report(batch_id: str) -> None:
    batch = await ox.batches.get(batch_id)
    progress = await batch.progress()
    print(f"{batch.name}: {progress.succeeded} sent, {progress.failed} failed")


@ox.task
async def celebrate(batch_id: str) -> None:
    print(f"{(await ox.batches.get(batch_id)).name}: all sent")


async def main() -> None:
    async with ox:
        for night, orders in {"monday": [1, 2], "tuesday": [3, 4]}.items():
            create = ox.batches.create(night, on_complete=report, on_success=celebrate, pass_batch=True)
            async with create as batch:
                await batch.add_many(send_invoice, [(order,) for order in orders])
            print(f"{night}: {(await batch.explain()).reason}")
        await ox.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
