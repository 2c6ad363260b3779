"""What an `AsyncSession` has not written yet stays so, what it has loaded stays readable, and its end is its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import NullPool, event, inspect, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oxpull_async import Oxpull, TransactionRolledBack
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import hold, key_of, own_rows
from tests.joined.handles import Handle, sqlalchemy_url

every_session = pytest.mark.parametrize(
    "way",
    [
        f"{driver}-session"
        for driver in (
            "postgresql+asyncpg",
            "postgresql+psycopg",
            "sqlite+aiosqlite",
            "mysql+asyncmy",
            "mysql+aiomysql",
        )
    ],
    indirect=True,
)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture
async def engine_(url: str, handle: Handle) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(sqlalchemy_url(url, handle.name.removesuffix("-session")), poolclass=NullPool)
    yield engine
    await engine.dispose()


@every_session
@pytest.mark.parametrize("duplicate", [False, True], ids=["new", "duplicate"])
async def test_pending_objects_are_not_flushed_and_loaded_ones_stay_readable(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor, duplicate: bool
):
    competitor.run("INSERT INTO orders (n) VALUES (1)")
    holder = hold(competitor, 1) if duplicate else None

    async with AsyncSession(engine_) as session:
        loaded = (await session.execute(select(Order).where(Order.n == 1))).scalar_one()
        pending = Order(n=2)
        session.add(pending)
        result = await ox.bind(session).enqueue_unique(send, 1)
        many = await ox.bind(session).enqueue_unique_many(send, [(1,), (2,)])

        assert loaded.n == 1
        assert not inspect(loaded).expired
        assert inspect(pending).pending
        assert pending in session.new
        with session.no_autoflush:
            assert (await session.execute(text("SELECT n FROM orders"))).all() == [(1,)]
        await session.commit()

    assert (result.created, result.id if duplicate else None) == (not duplicate, holder)
    assert [found.created for found in many] == [False, True]
    assert own_rows(competitor) == {1, 2}
    assert set(competitor.locks()) == {key_of(1), key_of(2)}


@every_session
async def test_the_order_of_flush_and_enqueue_is_the_callers(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor
):
    async with AsyncSession(engine_) as session:
        order = Order(n=7)
        session.add(order)
        await session.flush()
        result = await ox.bind(session).enqueue_unique(send, order.n)
        await session.rollback()
        assert competitor.counts() == (0, 0)

        session.add(Order(n=7))
        again = await ox.bind(session).enqueue_unique(send, 7)
        await session.commit()

    assert result.created
    assert again.created
    assert own_rows(competitor) == {7}
    assert competitor.locks() == {key_of(7): again.id}


@every_session
async def test_an_enqueue_inside_a_nested_transaction_is_undone_with_it(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor
):
    async with AsyncSession(engine_) as session:
        session.add(Order(n=1))
        await session.flush()
        outer = await ox.bind(session).enqueue_unique(send, 1)
        nested = await session.begin_nested()
        session.add(Order(n=2))
        await ox.bind(session).enqueue_unique(send, 2)
        assert (await ox.bind(session).enqueue_unique(send, 1)).id == outer.id
        await nested.rollback()
        async with session.begin_nested():
            kept = await ox.bind(session).enqueue_unique(send, 3)
        await session.commit()

    assert own_rows(competitor) == {1}
    assert competitor.locks() == {key_of(1): outer.id, key_of(3): kept.id}


# On SQLite SQLAlchemy's own SAVEPOINT is then the transaction, and its RELEASE commits, unless the engine is set up
# as in SQLAlchemy's manual
@every_session
async def test_after_a_nested_transaction_that_comes_first_the_task_shares_the_fate_of_the_callers_rows(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor, handle: Handle
):
    async with AsyncSession(engine_) as session:
        async with session.begin_nested():
            await session.execute(text("INSERT INTO orders (n) VALUES (1)"))
            await ox.bind(session).enqueue_unique(send, 1)
        await session.rollback()

    assert own_rows(competitor) == ({1} if handle.dialect == "sqlite" else set())
    assert competitor.counts() == ((1, 1) if handle.dialect == "sqlite" else (0, 0))


@pytest.mark.parametrize("way", ["sqlite+aiosqlite-session"], indirect=True)
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
async def test_an_engine_that_begins_by_itself_is_joined_as_it_is(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor, nested: bool
):
    @event.listens_for(engine_.sync_engine, "connect")
    def leave_it_to_us(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine_.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    for end in ("rollback", "commit"):
        async with AsyncSession(engine_) as session:
            async with session.begin_nested() if nested else contextlib.nullcontext():
                result = await ox.bind(session).enqueue_unique(send, 1)
            await getattr(session, end)()

    assert competitor.locks() == {key_of(1): result.id}


@every_session
async def test_an_error_that_the_session_has_not_ended_yet_is_told_as_a_lost_transaction(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor
):
    competitor.run("INSERT INTO orders (n) VALUES (1)")

    async with AsyncSession(engine_) as session:
        session.add(Order(n=1))
        with pytest.raises(IntegrityError):
            await session.flush()
        with pytest.raises(TransactionRolledBack, match="roll it back and repeat all of it"):
            await ox.bind(session).enqueue_unique(send, 1)
        await session.rollback()
        result = await ox.bind(session).enqueue_unique(send, 1)
        await session.commit()

    assert competitor.locks() == {key_of(1): result.id}


@every_session
async def test_nothing_of_ours_outlives_the_call_in_the_session(
    ox: Oxpull, send: AnyTask, engine_: AsyncEngine, competitor: Competitor
):
    seen: list[str] = []
    async with AsyncSession(engine_) as session:
        bound = ox.bind(session)
        for method in ("commit", "rollback", "flush", "begin", "begin_nested", "close"):
            _watch(session.sync_session, method, seen)
        await bound.enqueue_unique(send, 1)
        await bound.enqueue_unique_many(send, [(1,), (2,)])

        assert seen == []
        assert not session.new
        assert not session.identity_map
        assert not session.in_nested_transaction()


def _watch(target: Any, method: str, seen: list[str]) -> None:
    original = getattr(target, method)

    def called(*args: Any, **kwargs: Any) -> Any:
        seen.append(method)
        return original(*args, **kwargs)

    setattr(target, method, called)
