"""A transaction of our own that lasts for a block."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.sqlite import joined, tasks
from oxpull_async.drivers.sqlite.pool import Pool
from oxpull_async.exceptions import LockNotAvailable, NotOpen, StoreError, UniqueViolation
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_task
from tests.integration.sqlite_lines import is_free, kept, nothing

IDS = Statement("ids", "SELECT id FROM django_ox_oxtask")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ox.db")


@pytest.fixture(params=["file", "memory"])
async def pool(request: pytest.FixtureRequest, path: str) -> AsyncIterator[Pool]:
    pool = Pool(f"sqlite:///{path}" if request.param == "file" else "sqlite://", make_settings({"close_timeout": 0.3}))
    await pool.open()
    await pool.migrate(lean=False)
    yield pool
    await pool.close()


async def count(pool: Pool) -> int:
    return len(await pool.read(every_task()))


def every_task() -> Procedure[list[object]]:
    result = yield IDS()
    return list(result.rows)


async def test_it_commits_at_the_end_of_the_block(pool: Pool):
    async with pool.begin() as transaction:
        await transaction.run(joined.insert_tasks([new_task()]))
        await transaction.run(joined.insert_tasks([new_task()]))

    assert await count(pool) == 2


async def test_it_rolls_back_on_an_error(pool: Pool):
    with pytest.raises(ZeroDivisionError):
        async with pool.begin() as transaction:
            await transaction.run(joined.insert_tasks([new_task()]))
            raise ZeroDivisionError

    assert await count(pool) == 0
    assert await pool.write(nothing("fine")) == "fine"


async def test_an_error_of_a_call_leaves_the_rest_as_it_was(pool: Pool):
    task = new_task()
    async with pool.begin() as transaction:
        await transaction.run(joined.insert_tasks([task]))
        with pytest.raises(UniqueViolation):
            await transaction.run(joined.insert_tasks([new_task(), task]))
        await transaction.run(joined.insert_tasks([new_task()]))

    assert await count(pool) == 2


async def test_a_defect_of_a_call_undoes_all_of_it(pool: Pool):
    def defective() -> Procedure[None]:
        yield from tasks.insert([new_task()])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with pool.begin() as transaction:
            with pytest.raises(ZeroDivisionError):
                await transaction.run(defective())
            with pytest.raises(StoreError):
                await transaction.run(joined.insert_tasks([new_task()]))

    assert await count(pool) == 0


async def test_what_is_read_beside_it_does_not_wait(pool: Pool):
    async with pool.begin() as transaction:
        await transaction.run(joined.insert_tasks([new_task()]))
        with anyio.fail_after(5):
            await count(pool)


async def test_a_writer_beside_it_waits_as_long_as_it_wants_to(pool: Pool):
    async with pool.begin():
        began = time.monotonic()
        with pytest.raises(LockNotAvailable):
            await pool.write(nothing(None), wait_seconds=0.2)
        assert 0.2 <= time.monotonic() - began < 2
        patient = asyncio.ensure_future(pool.write(nothing("written")))
        await asyncio.sleep(0)

    assert await patient == "written"


async def test_a_cancel_inside_the_block_rolls_back_at_once(pool: Pool, path: str):
    with anyio.move_on_after(0.1) as scope:
        async with pool.begin() as transaction:
            await transaction.run(joined.insert_tasks([new_task()]))
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert is_free(path)
    assert await count(pool) == 0


@pytest.mark.parametrize("spins", range(0, 60, 3))
async def test_a_cancel_anywhere_is_all_or_nothing(path: str, spins: int):
    pool = Pool(f"sqlite:///{path}", make_settings({}))
    await pool.open()
    await pool.migrate(lean=False)

    async def block() -> None:
        async with pool.begin() as transaction:
            await transaction.run(joined.insert_tasks([new_task()]))
            await transaction.run(joined.insert_tasks([new_task()]))

    task = asyncio.ensure_future(block())
    for _ in range(spins * 5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert is_free(path)
    assert await count(pool) in ((0, 2) if task.cancelled() else (2,))
    await pool.close()


async def test_it_waits_for_another_process_no_longer_than_any_writer(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oxpull_async.drivers.sqlite.pool._LOCK_SECONDS", 0.2)
    pool = Pool(f"sqlite:///{path}", make_settings({}))
    await pool.open()
    with kept(path), pytest.raises(LockNotAvailable):
        async with pool.begin():
            raise AssertionError("it began")
    await pool.close()


async def test_after_its_end_nothing_can_be_done_in_it(pool: Pool):
    async with pool.begin() as transaction:
        pass

    with anyio.fail_after(5), pytest.raises(StoreError):
        await transaction.run(joined.insert_tasks([new_task()]))


async def test_close_ends_a_transaction_that_somebody_keeps(path: str):
    pool = Pool(f"sqlite:///{path}", make_settings({"close_timeout": 0.2}))
    await pool.open()
    await pool.migrate(lean=False)
    with pytest.raises(NotOpen):
        async with pool.begin() as transaction:
            await transaction.run(joined.insert_tasks([new_task()]))
            with anyio.fail_after(5):
                await pool.close()

    assert is_free(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM django_ox_oxtask").fetchone() == (0,)
