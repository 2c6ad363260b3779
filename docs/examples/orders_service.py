"""An order and its invoice task, committed together or not at all."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, FastAPI
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oxpull_async import Oxpull

DATABASE = os.environ.get("DATABASE", "localhost/shop")
ox = Oxpull(f"postgresql://{DATABASE}")
engine = create_async_engine(f"postgresql+asyncpg://{DATABASE}")  # the same database
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    return f"invoice for order {order_id} sent"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with ox:
        await ox.migrate()
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
    await engine.dispose()


async def new_session() -> AsyncIterator[AsyncSession]:
    async with sessions() as session:
        yield session


Session: TypeAlias = Annotated[AsyncSession, Depends(new_session)]
app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create(customer: str, session: Session) -> dict[str, Any]:
    async with session.begin():  # ends with the commit, so that comes before the response
        order = Order(customer=customer)
        session.add(order)
        await session.flush()  # the order has its id now
        result = await ox.bind(session).enqueue(send_invoice, order.id)
        if customer == "nobody":
            raise ValueError("no such customer")  # undoes order, task and lock
        return {"order": order.id, "task": result.id, "created": result.created}
