"""Connections to MariaDB and MySQL: how they are set up, and who gets one."""

from __future__ import annotations

import asyncio
import logging
import time
from urllib.parse import urlsplit

import anyio
import pytest

from oxpull_async import Oxpull, TaskStatus
from oxpull_async.core.keys import unique_key
from oxpull_async.drivers.mysql import pool as pools
from oxpull_async.drivers.mysql import tasks
from oxpull_async.drivers.mysql.pool import Pool, session
from oxpull_async.exceptions import ConnectionLost, NotOpen, PoolTimeout, StoreError, WrongDatabase
from oxpull_async.ports import Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_task, new_unique
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.mysql_pools import Opened, answered, fill, opened, pool, sleeping, store

__all__ = ["opened", "pool", "store"]

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]


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


async def test_guards_against_careless_statements_are_not_for_ours(
    migrated_url: str, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    careful = "SET sql_safe_updates = 1, max_join_size = 1, sql_select_limit = 1, completion_type = 'RELEASE'"
    impatient = "/*M! , max_statement_time = 0.1 */ /*!80000 , max_execution_time = 100 */; "
    monkeypatch.setattr(pools, "session", lambda seconds: careful + impatient + session(seconds))
    async with Oxpull(migrated_url) as ox:
        task = ox.task(unique=True)(noted)

        results = await ox.enqueue_many(task, [(number,) for number in range(3)])
        competitor.begin()
        competitor.insert_unique(unique_key("default", task.path, "default", ["busy"], {}))
        waiting = asyncio.ensure_future(task.enqueue("busy"))
        with competitor.another() as observer:
            await eventually(lambda: observer.waiting_sessions() == 1)
        competitor.commit()

        assert not (await waiting).created
        assert await ox.run_until_idle() == 3
        assert [(await result.refresh()).status for result in results] == [TaskStatus.SUCCESSFUL] * 3


async def noted(value: object) -> None: ...


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


async def test_a_server_that_would_garble_outcomes_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pools, "_QUOTE", "SELECT CONCAT(CHAR(92), CHAR(34))")  # as MariaDB 10.6.7 answers

    with pytest.raises(WrongDatabase, match="JSON_TABLE"):
        await Oxpull(database_url).open()


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
