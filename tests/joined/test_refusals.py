"""What can't be joined is refused before anything is written, and says what to do instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from oxpull_async import (
    ConnectionLost,
    InvalidArguments,
    NotOpen,
    Oxpull,
    StoreError,
    TransactionRequired,
    TransactionRolledBack,
    WrongDatabase,
)
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.integration.shared_database import SharedDatabases
from tests.joined.calls import key_of, own_rows
from tests.joined.handles import ORDERS, Caller, Handle, sqlalchemy_url
from tests.servers.databases import Databases

Callers = Callable[[], Awaitable[Caller]]
RAW = ["asyncpg", "asyncpg-pool", "aiosqlite-manual", "asyncmy-autocommit"]
SQLALCHEMY = ["postgresql+asyncpg", "postgresql+psycopg", "sqlite+aiosqlite", "mysql+asyncmy", "mysql+aiomysql"]


@pytest.mark.parametrize("way", RAW, indirect=True)
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_unique", "enqueue_many", "enqueue_unique_many"])
async def test_a_connection_in_no_transaction_is_refused(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, verb: str
):
    calls = [(1,), (2,)] if verb.endswith("many") else 1
    with pytest.raises(TransactionRequired, match=r"no transaction.*ox\.transaction"):
        await getattr(ox.bind(caller.bindable), verb)(send, calls)

    assert competitor.counts() == (0, 0)
    await caller.begin()
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).created
    await caller.rollback()
    with pytest.raises(TransactionRequired):
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("way", [f"{driver}-connection" for driver in SQLALCHEMY], indirect=True)
@pytest.mark.parametrize("where", ["engine", "options", "connection"])
async def test_sqlalchemy_in_autocommit_is_refused(
    ox: Oxpull, send: AnyTask, url: str, handle: Handle, where: str, competitor: Competitor
):
    driver = handle.name.removesuffix("-connection")
    autocommit = {"isolation_level": "AUTOCOMMIT"}
    plain = create_async_engine(
        sqlalchemy_url(url, driver), poolclass=NullPool, **(autocommit if where == "engine" else {})
    )
    engine = plain.execution_options(**autocommit) if where == "options" else plain
    async with engine.connect() as connection, AsyncSession(engine) as session:
        if where == "connection":
            await connection.execution_options(**autocommit)
            await session.connection(execution_options=autocommit)
        await connection.begin()
        for bindable in (connection, session):
            with pytest.raises(TransactionRequired, match="AUTOCOMMIT"):
                await ox.bind(bindable).enqueue_unique(send, 1)
    await plain.dispose()

    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("way", [f"{driver}-connection" for driver in SQLALCHEMY], indirect=True)
async def test_a_sqlalchemy_connection_that_has_not_begun_or_not_started_is_refused(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    engine = caller.engine  # type: ignore[attr-defined]
    with pytest.raises(TransactionRequired, match=r"engine\.begin"):
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    with pytest.raises(TransactionRequired, match="isn't started"):
        await ox.bind(engine.connect()).enqueue_unique(send, 1)

    assert competitor.counts() == (0, 0)


@pytest.mark.usefixtures("few")
async def test_a_connection_that_is_closed_is_refused(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.rollback()
    await caller.close()
    if isinstance(caller.bindable, AsyncSession):
        return  # it connects anew by itself

    with pytest.raises((TransactionRequired, ConnectionLost)):
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("way", ["asyncpg-pool"], indirect=True)
async def test_a_connection_that_was_given_back_to_its_pool_is_refused(ox: Oxpull, send: AnyTask, caller: Caller):
    await caller.pool.release(caller.bindable)  # type: ignore[attr-defined]
    with pytest.raises(TransactionRequired, match="released back to the pool"):
        await ox.bind(caller.bindable).enqueue_unique(send, 1)


@pytest.mark.usefixtures("few")
async def test_another_database_of_the_same_server_is_refused(
    way: Any, handle: Handle, databases: Databases, url: str, ox: Oxpull, send: AnyTask, competitor: Competitor
):
    with databases.migrated(way.engine) as elsewhere:
        caller = handle.make(elsewhere)
        await caller.open()
        try:
            with Competitor(elsewhere) as there:
                there.run(ORDERS)
                await caller.begin()
                await caller.order(1)
                with pytest.raises(WrongDatabase, match="another database"):
                    await ox.bind(caller.bindable).enqueue_unique(send, 1)
                await caller.order(2)
                await caller.commit()
                assert own_rows(there) == {1, 2}
                assert there.counts() == (0, 0)
        finally:
            await caller.close()
    assert competitor.counts() == (0, 0)


@pytest.mark.engines("postgres")
async def test_another_schema_of_the_same_database_is_refused(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor
):
    competitor.run("CREATE SCHEMA elsewhere")
    try:
        for table in ("django_ox_oxtask", "oxpull_oxpulluniquelock"):
            competitor.run(f"CREATE TABLE elsewhere.{table} (LIKE public.{table} INCLUDING ALL)")
        caller = await new_caller()
        await caller.begin()
        await caller.run("SET search_path = elsewhere")
        with pytest.raises(WrongDatabase):
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
        await caller.rollback()
        assert competitor.rows("SELECT count(*) FROM elsewhere.django_ox_oxtask") == [(0,)]
    finally:
        competitor.run("DROP SCHEMA elsewhere CASCADE")


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
async def test_a_database_without_the_tables_is_refused(
    way: Any, handle: Handle, databases: Databases, ox: Oxpull, send: AnyTask
):
    with databases.empty(way.engine) as elsewhere:
        caller = handle.make(elsewhere)
        await caller.open()
        try:
            await caller.begin()
            with pytest.raises(WrongDatabase):
                await ox.bind(caller.bindable).enqueue_unique(send, 1)
            assert await caller.query("SELECT 1") == [(1,)]
            await caller.rollback()
        finally:
            await caller.close()


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("used_before", [False, True], ids=["first-call", "later-call"])
async def test_a_transaction_in_which_something_has_failed_is_told_as_lost(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, used_before: bool
):
    await caller.begin()
    if used_before:
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    with pytest.raises(Exception, match="division by zero"):
        await caller.query("SELECT 1 / 0")
    for call in ("enqueue", "enqueue_unique"):
        with pytest.raises(TransactionRolledBack, match="roll it back and repeat all of it"):
            await getattr(ox.bind(caller.bindable), call)(send, 2)
    with pytest.raises(TransactionRolledBack, match="roll it back and repeat all of it"):
        await ox.bind(caller.bindable).enqueue_unique_many(send, [(2,), (3,)])
    await caller.rollback()

    assert competitor.counts() == (0, 0)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_unique", "enqueue_many", "enqueue_unique_many"])
async def test_missing_tables_are_told_and_cost_the_caller_nothing(
    way: Any, handle: Handle, databases: Databases, verb: str
):
    with databases.empty(way.engine) as bare, Competitor(bare) as competitor:
        competitor.run(ORDERS)
        caller = handle.make(bare)
        await caller.open()
        try:
            async with Oxpull(bare) as ox:
                await caller.begin()
                await caller.order(1)
                calls = [(1,), (2,)] if verb.endswith("many") else 1
                with pytest.raises(WrongDatabase, match="ox.migrate"):
                    await getattr(ox.bind(caller.bindable), verb)(ox.reference("proof.send"), calls)
                await caller.order(2)
                await caller.commit()
        finally:
            await caller.close()

        assert own_rows(competitor) == {1, 2}


@pytest.mark.engines("postgres")
@pytest.mark.usefixtures("few")
async def test_a_transaction_that_may_only_read_is_not_worth_another_try(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await caller.run("SET TRANSACTION READ ONLY")
    for call in (ox.bind(caller.bindable).enqueue_unique(send, 1), ox.bind(caller.bindable).enqueue_many(send, [(1,)])):
        with pytest.raises(StoreError, match="read-only") as caught:
            await call
        assert not caught.value.transient
    assert await caller.query("SELECT 1") == [(1,)]
    await caller.rollback()

    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("way", ["sqlite+aiosqlite-session"], indirect=True)
async def test_a_session_that_was_told_not_to_begin_by_itself_is_in_no_transaction(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    session = AsyncSession(caller.bindable.bind, autobegin=False)

    with pytest.raises(TransactionRequired, match="in no transaction"):
        await ox.bind(session).enqueue(send, 1)
    await session.begin()
    assert (await ox.bind(session).enqueue(send, 1)).created
    await session.commit()
    await session.close()

    assert competitor.counts() == (1, 1)


# The server would hang up
@pytest.mark.engines("mysql")
@pytest.mark.usefixtures("few")
async def test_more_than_the_server_takes_is_refused_and_costs_the_caller_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    store: Any = ox.store
    store._pool._limits.max_packet_bytes = 10_000
    bound = ox.bind(caller.bindable)
    much = "'" * 4_000

    await caller.begin()
    await caller.order(1)
    for call in (
        bound.enqueue(ox.reference("proof.work"), much),
        bound.enqueue_unique(send, much),
        bound.enqueue_unique_many(send, [(1,), (much,)]),
    ):
        with pytest.raises(StoreError, match="max_allowed_packet.*nothing was sent") as caught:
            await call
        assert (caught.value.code, caught.value.transient) == (1153, False)
    assert (await bound.enqueue_unique(send, 1)).created
    await caller.commit()

    assert own_rows(competitor) == {1}
    assert competitor.counts() == (1, 1)


# Anything but a connection or session, before any SQL


async def test_what_has_no_transaction_to_join_is_a_type_error_at_once(databases: Databases):
    import asyncpg

    ox = Oxpull("postgresql://nobody@127.0.0.1:1/nothing")
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing")
    pool = asyncpg.create_pool("postgresql://nobody@127.0.0.1:1/nothing")
    try:
        for source in (
            pool, engine, engine.sync_engine, async_sessionmaker(engine), async_scoped_session(
                async_sessionmaker(engine), scopefunc=lambda: None
            ), engine.begin(),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=r"ox\.bind takes a connection or a session"):
                ox.bind(source)
        for thing in (None, 1, "postgresql://", object(), ox, AsyncSession, lambda: None):
            with pytest.raises(TypeError, match=r"ox\.bind takes a connection or a session"):
                ox.bind(thing)
    finally:
        await engine.dispose()


async def test_a_session_or_connection_of_the_sync_api_is_a_type_error(ox_elsewhere: Oxpull):
    engine = create_engine("sqlite://")
    with pytest.raises(TypeError, match="takes AsyncSession"), engine.connect() as connection:
        ox_elsewhere.bind(connection)
    engine.dispose()
    with pytest.raises(TypeError, match="takes AsyncSession"):
        ox_elsewhere.bind(Session())


@pytest.mark.usefixtures("few")
async def test_a_connection_of_another_engine_is_a_type_error_before_any_sql(
    caller: Caller, handle: Handle, shared_databases: SharedDatabases
):
    other = "sqlite" if handle.dialect == "postgres" else "postgres"
    await caller.begin()
    await caller.order(1)
    async with Oxpull(shared_databases.url(other)) as ox:
        with pytest.raises(TypeError, match=rf"is one of {handle.dialect}.*is {other}"):
            await ox.bind(caller.bindable).enqueue_unique(ox.reference("proof.send"), 1)
    assert await caller.orders() == {1}
    await caller.rollback()


async def test_a_session_of_a_dialect_that_is_not_served_is_a_type_error(ox_elsewhere: Oxpull):
    engine = create_async_engine("postgresql+psycopg_async://nobody@127.0.0.1:1/nothing")
    engine.sync_engine.dialect.driver = "unheard_of"
    async with AsyncSession(engine) as session:
        with pytest.raises(TypeError, match=r"postgresql\+unheard_of can't be bound; these can: postgresql\+asyncpg"):
            await ox_elsewhere.bind(session).enqueue_unique(ox_elsewhere.reference("proof.send"), 1)
    await engine.dispose()


async def test_a_session_that_is_bound_to_nothing_is_a_type_error(ox_elsewhere: Oxpull):
    async with AsyncSession() as session:
        with pytest.raises(TypeError, match="bound to no engine"):
            await ox_elsewhere.bind(session).enqueue_unique(ox_elsewhere.reference("proof.send"), 1)


# NotOpen


@pytest.mark.usefixtures("few")
async def test_an_oxpull_that_is_not_open_is_refused_bound_or_not(url: str, caller: Caller, competitor: Competitor):
    ox = Oxpull(url)
    send = ox.reference("proof.send", unique=True)
    await caller.begin()
    with pytest.raises(NotOpen, match="async with ox"):
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    async with ox:
        bound = ox.bind(caller.bindable)
        assert (await bound.enqueue_unique(send, 1)).created
    with pytest.raises(NotOpen):
        await bound.enqueue_unique(send, 2)
    await caller.commit()

    assert set(competitor.locks()) == {key_of(1)}


@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_an_oxpull_of_another_event_loop_is_refused(url: str):
    ox = Oxpull(url)
    await ox.open()
    try:
        loop = asyncio.new_event_loop()

        async def elsewhere() -> None:
            ox.bind(object())

        with pytest.raises(TypeError):
            await asyncio.to_thread(loop.run_until_complete, elsewhere())
        loop.close()
    finally:
        await ox.close()


# Values


@pytest.mark.usefixtures("few")
async def test_arguments_that_cannot_be_stored_are_refused_before_any_sql(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await caller.order(1)
    bound = ox.bind(caller.bindable)
    for value in (object(), {1, 2}, float("nan"), "a\0b", "\ud800"):
        with pytest.raises(InvalidArguments):
            await bound.enqueue_unique(send, value)
        with pytest.raises(InvalidArguments, match="call 1"):
            await bound.enqueue_unique_many(send, [(1,), (value,)])
    with pytest.raises(InvalidArguments, match="call 0"):
        await bound.enqueue_many(send, [1])  # type: ignore[list-item]
    await caller.order(2)
    await caller.commit()

    assert competitor.counts() == (0, 0)
    assert own_rows(competitor) == {1, 2}


@pytest.fixture
async def ox_elsewhere() -> Any:
    async with Oxpull.in_memory() as ox:
        yield ox
