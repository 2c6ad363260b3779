"""Connections to MariaDB and MySQL: how they are set up, who gets one, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.mysql import tasks, unique
from oxpull_async.drivers.mysql.pool import Pool
from oxpull_async.exceptions import (
    ConnectionLost,
    NotOpen,
    PoolTimeout,
    StatementTimeout,
    StoreError,
    UniqueViolation,
    WrongDatabase,
)
from oxpull_async.ports import Held, Inserted, Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_task, new_unique, request, success
from tests.eventually import eventually
from tests.integration.competitor import Competitor

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]

NOTHING = Statement("nothing", "SELECT 1")

Opened = Callable[..., Any]


@pytest.fixture
async def opened(migrated_url: str, competitor: Competitor) -> AsyncIterator[Opened]:
    """Opens pools with settings of their own; they are closed after the test. The competitor sees their sessions."""
    pools: list[Pool] = []

    async def open_pool(**settings: Any) -> Pool:
        pool = Pool(migrated_url, make_settings(settings))
        await pool.open()
        await pool.describe()
        pools.append(pool)
        return pool

    yield open_pool
    for pool in pools:
        await pool.close()


@pytest.fixture
async def pool(opened: Opened) -> Pool:
    opened_pool: Pool = await opened()
    return opened_pool


@pytest.fixture
async def store(migrated_url: str, competitor: Competitor) -> AsyncIterator[Store]:
    store = open_store(migrated_url, make_settings({}))
    await store.open()
    yield store
    await store.close()


def sleeping(seconds: float) -> Procedure[None]:
    yield Statement("sleep", f"SELECT SLEEP({seconds})")()  # written out, so that it can be seen to run


def answered() -> Procedure[Any]:
    result = yield NOTHING()
    return result.rows[0][0]


async def fill(pool: Pool, size: int = 5) -> None:
    """Have so many connections at rest."""
    async with anyio.create_task_group() as group:
        for _ in range(size):
            group.start_soon(pool.read, sleeping(0.1))


async def kill_all(competitor: Competitor) -> None:
    """End every session, and let the event loop hear of it."""
    for session in competitor.sessions():
        competitor.kill(session)
    await eventually(lambda: competitor.sessions() == [])
    for _ in range(3):
        await asyncio.sleep(0)


def is_running(competitor: Competitor, words: str) -> bool:
    running = competitor.rows("SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID()")
    return any(words in (info or "") for (info,) in running)


# How they are set up


async def test_a_session_does_not_depend_on_the_servers_defaults(pool: Pool):
    async with pool.connection() as connection:
        found = await connection.command(
            "SELECT @@autocommit, @@time_zone, @@innodb_lock_wait_timeout, @@sql_mode, @@character_set_client"
        )
        ((autocommit, zone, wait, mode, charset),) = found.rows
        levels = await connection.command(
            "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
        )

    assert (autocommit, zone, wait, charset) == (1, "+00:00", 1, "utf8mb4")
    assert {"STRICT_ALL_TABLES", "TRADITIONAL"} <= set(mode.split(","))
    assert {level for _, level in levels.rows} == {"READ-COMMITTED"}


async def test_what_a_column_cannot_hold_is_refused_and_not_cut(store: Store):
    with pytest.raises(StoreError) as caught:
        await store.insert_tasks([new_task(queue_name="q" * 129)])

    assert caught.value.code == 1406


async def test_a_duplicate_key_is_nothing_to_warn_of(
    store: Store, competitor: Competitor, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    held = new_unique("a")
    competitor.begin()
    competitor.insert_unique(held.key)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: store.insert_unique([held], wait_seconds=5))
        await eventually(lambda: competitor.waiting_sessions() == 1)
        competitor.commit()

    assert [record for record in caplog.records if record.name.startswith("asyncmy")] == []


@pytest.mark.parametrize("statement_cache", [True, False])
async def test_prepared_statements_are_a_choice(opened: Opened, competitor: Competitor, statement_cache: bool):
    pool = await opened(statement_cache=statement_cache)
    task = new_task()

    await pool.write(tasks.insert([task]))
    found = await pool.read(tasks.get(task.id))

    assert found is not None
    assert found.enqueued_at == task.enqueued_at
    assert found.takes_context is False


# Who gets one


async def test_a_connection_is_used_again(pool: Pool, competitor: Competitor):
    for _ in range(5):
        await pool.read(answered())

    assert len(competitor.sessions()) == 1


async def test_who_gets_no_connection_in_time_is_told(opened: Opened):
    pool = await opened(pool_size=1, pool_timeout=0.1)
    async with pool.connection():
        with pytest.raises(PoolTimeout, match="pool_size=1"):
            await pool.read(answered())

    assert await pool.read(answered()) == 1


async def test_a_cancelled_wait_costs_no_connection(opened: Opened):
    pool = await opened(pool_size=1)
    async with pool.connection():
        with anyio.move_on_after(0.05) as scope:
            await pool.read(answered())

    assert scope.cancelled_caught
    assert await pool.read(answered()) == 1


async def test_a_server_that_accepts_and_says_nothing_is_given_up():
    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        pool = Pool(f"mysql://ox@127.0.0.1:{port}/queue", make_settings({"connect_timeout": 0.2}))
        began = time.monotonic()

        with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
            await pool.open()

        assert time.monotonic() - began < 2
        await left.wait()


async def test_nobody_listening_is_a_lost_connection():
    pool = Pool("mysql://ox@127.0.0.1:1/queue", make_settings({}))

    with pytest.raises(ConnectionLost):
        await pool.open()


async def test_a_wrong_password_is_not_worth_repeating(migrated_url: str):
    parts = urlsplit(migrated_url)
    wrong = parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}").geturl()

    with pytest.raises(StoreError) as caught:
        await Pool(wrong, make_settings({})).open()

    assert caught.value.code == 1045
    assert not caught.value.transient
    assert "wrong" not in str(caught.value)


async def test_a_database_that_is_not_there_is_the_wrong_one(migrated_url: str):
    with pytest.raises(WrongDatabase, match="Create the database"):
        await Pool(f"{migrated_url}_not", make_settings({})).open()


async def test_a_closed_pool_says_so(pool: Pool):
    await pool.close()
    await pool.close()

    with pytest.raises(NotOpen):
        await pool.read(answered())


async def test_a_pool_may_be_opened_again(pool: Pool):
    await pool.close()
    await pool.open()

    assert await pool.read(answered()) == 1


async def test_who_waits_when_the_pool_closes_is_told(opened: Opened):
    pool = await opened(pool_size=1)
    busy = asyncio.ensure_future(pool.read(sleeping(0.2)))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(pool.read(answered()))
    await asyncio.sleep(0)

    await pool.close()

    with pytest.raises(NotOpen):
        await waiting
    await busy


async def test_closing_waits_for_who_is_busy_but_not_for_ever(opened: Opened):
    pool = await opened(close_timeout=0.2)
    busy = asyncio.ensure_future(pool.read(sleeping(30)))
    await asyncio.sleep(0.05)
    began = time.monotonic()

    await pool.close()

    assert time.monotonic() - began < 2
    with pytest.raises(ConnectionLost):
        await busy


async def test_a_closed_pool_leaves_no_session(pool: Pool, competitor: Competitor):
    await fill(pool)

    await pool.close()

    await eventually(lambda: competitor.sessions() == [])


# What becomes of them


@pytest.fixture(params=["insert", "insert unique", "claim", "settle", "read"])
def operation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_connections_that_died_at_rest_are_replaced_in_silence(
    store: Store, competitor: Competitor, operation: str
):
    held = new_unique("a")
    await store.insert_unique([held], wait_seconds=1)
    await store.insert_tasks([new_task()])
    claim, _ = await store.claim(request())
    await fill(store._pool)  # type: ignore[attr-defined]
    await kill_all(competitor)

    if operation == "insert":
        await store.insert_tasks([new_task()])
    elif operation == "insert unique":
        assert await store.insert_unique([new_unique("b")], wait_seconds=1) == [Inserted()]
    elif operation == "claim":
        assert await store.claim(request()) == []
    elif operation == "settle":
        assert await store.settle([success(claim)]) == [claim.id]
    else:
        assert isinstance(await store.read_holder(held.key), Held)


async def test_one_dead_connection_makes_the_others_at_rest_suspect(store: Store, competitor: Competitor):
    pool = store._pool  # type: ignore[attr-defined]
    await fill(pool)
    await kill_all(competitor)

    await pool.read(answered())

    assert len(pool._free) == 1


async def test_a_cancelled_statement_is_ended_on_the_server_too(pool: Pool, competitor: Competitor):
    call = asyncio.ensure_future(pool.read(sleeping(30.5)))
    await eventually(lambda: is_running(competitor, "SLEEP(30.5)"))

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await eventually(lambda: not is_running(competitor, "SLEEP(30.5)"), within=3)
    assert await pool.read(answered()) == 1


async def test_a_statement_that_takes_too_long_is_ended_on_the_server_too(opened: Opened, competitor: Competitor):
    pool = await opened(statement_timeout=0.2)

    with pytest.raises(StatementTimeout):
        await pool.read(sleeping(31.5))

    await eventually(lambda: not is_running(competitor, "SLEEP(31.5)"), within=3)


async def test_what_waits_for_a_lock_when_it_is_cancelled_takes_no_effect(pool: Pool, competitor: Competitor):
    candidate = new_unique("a")
    competitor.begin()
    competitor.insert_lock(candidate.key, None)
    call = asyncio.ensure_future(pool.write(unique.insert([candidate], 10)))
    watcher = competitor.another()
    await eventually(lambda: watcher.waiting_sessions() == 1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: watcher.waiting_sessions() == 0, within=3)
    competitor.rollback()

    await eventually(lambda: watcher.open_transactions() == 0)
    assert watcher.counts() == (0, 0)
    watcher.close()


class Broken(Exception):
    pass


def breaking(task: Any) -> Procedure[None]:
    yield from tasks.insert([task])
    raise Broken


async def test_a_transaction_that_ends_by_an_error_leaves_nothing(pool: Pool, competitor: Competitor):
    with pytest.raises(Broken):
        await pool.transact(breaking(new_task()))

    assert competitor.counts() == (0, 0)
    assert competitor.open_transactions() == 0
    assert len(competitor.sessions()) == 1  # and the connection is kept


async def test_a_transaction_that_ends_by_the_servers_error_leaves_nothing(pool: Pool, competitor: Competitor):
    first, second = new_task(), new_task()
    await pool.write(tasks.insert([second]))

    def twice() -> Procedure[None]:
        yield from tasks.insert([first])
        yield from tasks.insert([second])

    with pytest.raises(UniqueViolation):
        await pool.transact(twice())

    assert list(competitor.statuses()) == [second.id]
    assert competitor.open_transactions() == 0


async def test_a_transaction_that_is_cancelled_leaves_nothing(pool: Pool, competitor: Competitor):
    def slowly() -> Procedure[None]:
        yield from tasks.insert([new_task()])
        yield from sleeping(32.5)

    call = asyncio.ensure_future(pool.transact(slowly()))
    await eventually(lambda: is_running(competitor, "SLEEP(32.5)"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await eventually(lambda: competitor.open_transactions() == 0, within=3)
    assert competitor.counts() == (0, 0)


# Large values


async def test_rows_of_several_packets_are_all_or_nothing(store: Store, competitor: Competitor):
    many = [new_task(args=json.dumps(["x" * 300_000])) for _ in range(8)]
    await store.insert_tasks([many[-1]])

    with pytest.raises(UniqueViolation):
        await store.insert_tasks(many)

    assert competitor.counts() == (1, 0)
    assert competitor.open_transactions() == 0


async def test_rows_of_several_packets_are_all_written(store: Store, competitor: Competitor):
    many = [new_task(args=json.dumps(["x" * 300_000])) for _ in range(8)]

    await store.insert_tasks(many)

    assert competitor.counts() == (8, 0)
    found = await store.get_tasks([task.id for task in many])
    assert {row.args for row in found} == {many[0].args}


async def test_a_row_that_the_server_would_not_take_is_refused_before_it_is_sent(store: Store, competitor: Competitor):
    ((limit,),) = competitor.rows("SELECT @@max_allowed_packet")

    with pytest.raises(StoreError, match="max_allowed_packet") as caught:
        await store.insert_tasks([new_task(args=json.dumps(["x" * limit]))])

    assert caught.value.code == 1153
    assert not caught.value.transient
    await store.insert_tasks([new_task()])


async def test_a_large_return_value_is_stored(store: Store):
    await store.insert_tasks([new_task()])
    (claim,) = await store.claim(request())

    await store.settle([success(claim, ["é😀\\\"'" * 200_000])])

    found = await store.get_task(claim.id)
    assert found is not None
    assert json.loads(found.return_value or "") == ["é😀\\\"'" * 200_000]
