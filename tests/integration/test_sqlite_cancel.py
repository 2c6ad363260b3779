"""A cancelled write happened or didn't happen, and leaves the file to others, whenever the cancel comes."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers.sqlite import unique
from oxpull_async.drivers.sqlite.pool import Pool
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_unique
from tests.integration.competitor import aside
from tests.integration.sqlite_lines import Gate, endless, gated, is_free, kept, nothing, waiting
from tests.scale import rounds


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ox.db")


@pytest.fixture
async def pool(path: str) -> AsyncIterator[Pool]:
    pool = Pool(f"sqlite:///{path}", make_settings({"synchronous": "NORMAL"}))
    await pool.open()
    await pool.migrate(lean=False)
    yield pool
    await pool.close()


def counts(path: str) -> tuple[int, int]:
    """How many task rows, and how many locks."""
    with closing(sqlite3.connect(path)) as connection:
        (tasks,) = connection.execute("SELECT COUNT(*) FROM django_ox_oxtask").fetchone()
        (locks,) = connection.execute("SELECT COUNT(*) FROM oxpull_oxpulluniquelock").fetchone()
    return tasks, locks


def insert(pool: Pool, key: str, count: int = 3) -> Awaitable[object]:
    return pool.write(unique.insert([new_unique(f"{key}-{n}") for n in range(count)], 1))


@pytest.mark.parametrize("way", ["task", "scope"])
async def test_a_write_that_is_cancelled_anywhere_is_all_or_nothing(pool: Pool, path: str, way: str):
    before = 0
    for spins in range(rounds(small=120, full=2_000)):
        cancelled = await (cancelled_task if way == "task" else cancelled_scope)(insert(pool, f"k{spins}"), spins)

        assert is_free(path)
        tasks, locks = counts(path)
        assert tasks == locks
        assert tasks - before in ((0, 3) if cancelled else (3,))
        before = tasks


async def cancelled_task(work: Awaitable[object], spins: int) -> bool:
    """Cancelled after so many turns of the loop, unless it ended before."""
    task = asyncio.ensure_future(work)
    await spin(spins)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def cancelled_scope(work: Awaitable[object], spins: int) -> bool:
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(cancel_later, scope, spins)
            await work
    return scope.cancelled_caught


async def cancel_later(scope: anyio.CancelScope, spins: int) -> None:
    await spin(spins)
    scope.cancel()


async def spin(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("before", range(3), ids=["the-lock", "the-task", "the-commit"])
async def test_a_cancel_between_two_statements_undoes_the_first(pool: Pool, path: str, before: int):
    gate = Gate()
    procedure = unique.insert([new_unique("a")], 1)
    task = asyncio.ensure_future(pool.write(gated(procedure, gate, before=before)))
    await aside(gate.reached.wait)

    task.cancel()
    await spin(3)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_free(path)
    assert counts(path) == (0, 0)
    assert await insert(pool, "b", count=1)


async def test_a_second_cancel_does_not_leave_early(pool: Pool, path: str):
    gate = Gate()
    task = asyncio.ensure_future(pool.write(gated(unique.insert([new_unique("a")], 1), gate, before=1)))
    await aside(gate.reached.wait)

    for _ in range(3):
        task.cancel()
        await spin(3)
    assert not task.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert counts(path) == (0, 0)


@pytest.mark.parametrize("way", ["write", "read"])
async def test_a_cancel_stops_a_statement_that_would_not_end(pool: Pool, path: str, way: str):
    work = pool.write if way == "write" else pool.read
    began = time.monotonic()
    with anyio.move_on_after(0.1) as scope:
        await work(endless())

    assert scope.cancelled_caught
    assert time.monotonic() - began < 5
    assert is_free(path)
    assert await work(nothing("fine")) == "fine"


async def test_a_cancel_ends_the_wait_for_another_process(pool: Pool, path: str):
    with kept(path):
        began = time.monotonic()
        with anyio.move_on_after(0.1) as scope:
            await insert(pool, "a")
        waited = time.monotonic() - began

    assert scope.cancelled_caught
    assert waited < 2
    assert await pool.write(nothing("fine")) == "fine"
    assert counts(path) == (0, 0)


async def test_a_cancel_before_its_turn_leaves_the_queue_at_once(pool: Pool, path: str):
    gate = Gate()
    first = asyncio.ensure_future(pool.write(waiting(gate)))
    await aside(gate.reached.wait)
    second = asyncio.ensure_future(insert(pool, "a"))
    await spin(3)

    second.cancel()
    with anyio.fail_after(1):
        with pytest.raises(asyncio.CancelledError):
            await second
    gate.opened.set()
    await first

    assert counts(path) == (0, 0)


async def test_an_error_that_comes_together_with_a_cancel_is_not_reported_as_forgotten(pool: Pool):
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    for spins in range(rounds(small=100, full=1_000)):
        with suppress(RuntimeError):
            await cancelled_task(pool.write(failing()), spins)
    gc.collect()

    assert reported == []


def failing() -> Procedure[None]:
    yield from ()
    raise RuntimeError("no")
