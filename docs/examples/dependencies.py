"""A task with a session of its own, from an engine that all tasks of a worker share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from oxpull_async import Oxpull, TaskContext
from oxpull_async.integrations.depends import Depends, current_task

ox = Oxpull("sqlite:///shop.db")


@dataclass
class Resources:
    engine: AsyncEngine


@ox.task_state
async def resources() -> AsyncIterator[Resources]:
    engine = create_async_engine("sqlite+aiosqlite:///shop.db")
    yield Resources(engine)
    await engine.dispose()


@asynccontextmanager
async def open_session(context: TaskContext[Resources] = Depends(current_task)) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(context.state.engine) as session, session.begin():
        yield session  # commits after the task, or rolls back if it fails


@ox.task
async def count_orders(customer: str, session: AsyncSession = Depends(open_session)) -> int:
    return await session.scalar(text("SELECT count(*) FROM orders WHERE customer = :name"), {"name": customer}) or 0


@ox.task(takes_context=True)
async def pool_status(context: TaskContext[Resources]) -> str:
    return type(context.state.engine.pool).__name__


async def main() -> None:
    async with ox:
        await ox.migrate()
        counted, status = await count_orders.enqueue("ada"), await pool_status.enqueue()
        await ox.run_until_idle()
        print(await counted.wait(timeout=5), "pool" in (await status.wait(timeout=5)).lower())


if __name__ == "__main__":
    asyncio.run(main())
