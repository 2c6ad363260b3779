"""An order and its invoice task, committed together or not at all, before the client is told."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oxpull_async import Oxpull
from oxpull_async.integrations.fastapi import BoundOxpull, bound_to

DATABASE = os.environ.get("DATABASE", "localhost/shop")
ox = Oxpull(f"postgresql://{DATABASE}")
engine = create_async_engine(f"postgresql+asyncpg://{DATABASE}")  # the same database
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    return f"invoice for order {order_id} sent"


async def open_session() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as session:
        yield session  # commits after it, or rolls back


Session = Annotated[AsyncSession, Depends(open_session, scope="function")]
BoundQueue = Annotated[BoundOxpull, Depends(bound_to(Session))]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with ox:
        await ox.migrate()
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield {"ox": ox}
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create(customer: str, session: Session, queue: BoundQueue) -> dict[str, Any]:
    order = Order(customer=customer)
    session.add(order)
    await session.flush()  # the order has its id now
    result = await queue.enqueue(send_invoice, order.id)
    if customer == "nobody":
        raise ValueError("no such customer")  # undoes order, task and lock
    return {"order": order.id, "task": result.id, "created": result.created}
