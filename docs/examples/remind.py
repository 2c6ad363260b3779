"""A script with nothing but asyncpg: orders are marked as reminded, and their reminders enqueued, or neither is."""

import asyncio
import os

import asyncpg

from oxpull_async import Oxpull

DATABASE = os.environ.get("DATABASE", "localhost/shop")
ox = Oxpull(f"postgresql://{DATABASE}")
send_reminder = ox.reference("shop.send_reminder", unique=True)  # declared in the service, whose workers run it

MARK = """
    UPDATE orders SET reminded = true
    WHERE id IN (SELECT id FROM orders WHERE NOT paid AND NOT reminded ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
    RETURNING id
"""


async def remind_some(pool: asyncpg.Pool) -> int:
    """A hundred orders at a time, so that no transaction holds its keys for long."""
    async with pool.acquire() as connection, connection.transaction():
        orders = await connection.fetch(MARK)
        calls = [(order["id"],) for order in orders]
        results = await ox.bind(connection).enqueue_unique_many(send_reminder, calls)
    print(f"{len(results)} orders marked, {sum(result.created for result in results)} reminders enqueued")
    return len(results)


async def main() -> None:
    async with ox, asyncpg.create_pool(f"postgresql://{DATABASE}", min_size=1, max_size=1) as pool:
        while await remind_some(pool):
            pass


asyncio.run(main())
