"""Whose turn it is to write, how long the others wait, and what they are told."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.sqlite import tasks, unique
from oxpull_async.drivers.sqlite.pool import Pool
from oxpull_async.exceptions import LockNotAvailable, NotOpen, PoolTimeout, StatementTimeout, StoreError
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_task, new_unique
from tests.eventually import eventually
from tests.integration.competitor import aside
from tests.integration.sqlite_lines import Gate, endless, is_free, kept, nothing, waiting


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ox.db")


@pytest.fixture
async def pool(path: str) -> AsyncIterator[Pool]:
    async for pool in opened(path):
        yield pool


async def opened(path: str, **settings: object) -> AsyncIterator[Pool]:
    pool = Pool(f"sqlite:///{path}", make_settings({"synchronous": "NORMAL", **settings}))
    await pool.open()
    try:
        await pool.migrate(lean=False)
        yield pool
    finally:
        await pool.close()


def noting(log: list[str], name: str) -> Procedure[None]:
    log.append(name)
    yield from ()


async def test_writers_come_in_their_order_and_the_urgent_first(pool: Pool):
    log: list[str] = []
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(pool.write, waiting(gate))
        await aside(gate.reached.wait)
        for name in ("first", "second"):
            group.start_soon(pool.write, noting(log, name))
            await asyncio.sleep(0)
        asyncio.create_task(pool.write(noting(log, "urgent"), urgent=True))  # noqa: RUF006 - awaited by what follows
        await asyncio.sleep(0)
        gate.opened.set()

    await eventually(lambda: log == ["urgent", "first", "second"])


async def test_the_urgent_overtake_those_who_wait_for_another_process(pool: Pool, path: str):
    log: list[str] = []
    with kept(path):
        ordinary = asyncio.create_task(pool.write(noting(log, "ordinary")))
        await asyncio.sleep(0.05)
        urgent = asyncio.create_task(pool.write(noting(log, "urgent"), urgent=True))
        await asyncio.sleep(0)
    await asyncio.gather(ordinary, urgent)

    assert log == ["urgent", "ordinary"]


async def test_a_writer_in_another_thread_gets_its_turn_while_the_event_loop_is_blocked(pool: Pool):
    took: list[float] = []

    def renew() -> None:
        began = time.monotonic()
        asyncio.run(pool.write(nothing(None), urgent=True))
        took.append(time.monotonic() - began)

    pending = [asyncio.ensure_future(pool.write(tasks.insert([new_task()]))) for _ in range(20)]
    await asyncio.sleep(0)
    renewer = threading.Thread(target=renew)
    renewer.start()
    renewer.join(10)  # the event loop stands still here

    assert took
    await asyncio.gather(*pending)


async def test_a_reader_does_not_wait_for_a_writer(pool: Pool):
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(pool.write, waiting(gate))
        await aside(gate.reached.wait)
        with anyio.fail_after(5):
            assert await pool.read(tasks.get(new_task().id)) is None
        gate.opened.set()


async def test_each_waits_for_another_process_as_long_as_it_wants_to(pool: Pool, path: str):
    with kept(path):
        patient = asyncio.create_task(pool.write(nothing("written"), wait_seconds=5))
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(LockNotAvailable) as caught:
            await pool.write(unique.insert([new_unique("a")], 0.1), wait_seconds=0.1)
        waited = time.monotonic() - began

    assert 0.1 <= waited < 2
    assert caught.value.code == sqlite3.SQLITE_BUSY
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await patient == "written"


async def test_a_queue_of_our_own_is_no_competitor(pool: Pool):
    gate = Gate()
    first = asyncio.ensure_future(pool.write(waiting(gate)))
    await aside(gate.reached.wait)
    second = asyncio.ensure_future(pool.write(nothing("written"), wait_seconds=0.05))
    await asyncio.sleep(0.2)
    gate.opened.set()

    assert await second == "written"
    await first


async def test_who_gets_no_turn_in_time_is_told(path: str):
    async for pool in opened(path, pool_timeout=0.2):
        gate = Gate()
        first = asyncio.ensure_future(pool.write(waiting(gate)))
        await aside(gate.reached.wait)
        with anyio.fail_after(10):
            with pytest.raises(PoolTimeout):
                await pool.write(nothing(None), wait_seconds=0.1)
        gate.opened.set()
        await first


@pytest.mark.parametrize("way", ["write", "read"])
async def test_a_statement_that_runs_too_long_is_stopped(path: str, way: str):
    async for pool in opened(path, statement_timeout=0.2):
        work = pool.write if way == "write" else pool.read
        with anyio.fail_after(10):
            with pytest.raises(StatementTimeout):
                await work(endless())
        assert await work(nothing("fine")) == "fine"
        assert is_free(path)


async def test_after_an_interrupt_nothing_more_is_written(path: str):
    """SQLite rolls the whole transaction back, and a next statement would be committed by itself."""
    slow = Statement(
        "slow",
        "INSERT INTO oxpull_async_leader WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT 'role' || i, 'me', '2026-11-30' FROM n WHERE i < 0",
    )
    quick = Statement("quick", "INSERT INTO oxpull_async_leader VALUES ('role', 'me', '2026-11-30')")

    def stubborn() -> Procedure[None]:
        try:
            yield slow()
        except StatementTimeout:
            yield quick()

    async for pool in opened(path, statement_timeout=0.2):
        with pytest.raises(StoreError):
            await pool.write(stubborn())

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM oxpull_async_leader").fetchall() == []


async def test_an_error_of_a_procedure_undoes_all_of_it(pool: Pool, path: str):
    def failing() -> Procedure[None]:
        yield from tasks.insert([new_task()])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await pool.transact(failing())

    assert is_free(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM django_ox_oxtask").fetchone() == (0,)


async def test_a_busy_writer_leaves_the_file_to_others_now_and_then(pool: Pool, path: str):
    """Others find a file free by chance alone, unless whoever works without a break makes one."""
    waits: list[float] = []

    def compete() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
            for _ in range(10):
                began = time.monotonic()
                while not got_lock(connection):
                    time.sleep(0.0005)
                connection.execute("ROLLBACK")
                waits.append(time.monotonic() - began)

    competitor = threading.Thread(target=compete)
    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(keep_writing, pool, competitor)
        competitor.start()

    assert len(waits) == 10
    assert sorted(waits)[5] < 1


def got_lock(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


async def keep_writing(pool: Pool, until_ended: threading.Thread) -> None:
    await pool.write(tasks.insert([new_task()]))
    while until_ended.is_alive():
        await pool.write(tasks.insert([new_task()]))


async def test_close_lets_those_who_wait_have_their_turn(path: str):
    pool = Pool(f"sqlite:///{path}", make_settings({}))
    await pool.open()
    gate = Gate()
    first = asyncio.ensure_future(pool.write(waiting(gate)))
    await aside(gate.reached.wait)
    second = asyncio.ensure_future(pool.write(nothing("written")))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    gate.opened.set()
    await closing

    assert await second == "written"
    await first
    with pytest.raises(NotOpen):
        await pool.write(nothing(None))


@pytest.mark.parametrize("obstacle", ["statement", "other process"])
async def test_close_cuts_short_what_would_not_end(path: str, obstacle: str):
    pool = Pool(f"sqlite:///{path}", make_settings({"close_timeout": 0.2}))
    await pool.open()
    with kept(path) if obstacle == "other process" else closing(sqlite3.connect(path)):
        running = asyncio.ensure_future(pool.write(endless()))
        behind = asyncio.ensure_future(pool.write(nothing(None)))
        await asyncio.sleep(0.05)
        with anyio.fail_after(5):
            await pool.close()
        outcomes = await asyncio.gather(running, behind, return_exceptions=True)

    assert all(isinstance(outcome, StoreError | NotOpen) for outcome in outcomes)
    assert is_free(path)
