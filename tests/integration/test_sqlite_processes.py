"""Many processes at one file: nobody is told that it's busy, and no key is held twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from oxpull_async.drivers import open_store
from oxpull_async.ports import Inserted, Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import new_task, new_unique, request, success
from tests.integration.competitor import aside
from tests.scale import rounds

PROCESSES = 8
WRITES = rounds(small=200, full=2_000)

Deed = Callable[[Store, int], Awaitable[int]]


async def insert_one_after_another(store: Store, number: int) -> int:
    for n in range(WRITES):
        await store.insert_tasks([new_task(args=f"[{number}, {n}]")])
    return WRITES


async def insert_from_many_coroutines(store: Store, number: int) -> int:
    async def some(start: int) -> None:
        for n in range(start, WRITES, 20):
            await store.insert_tasks([new_task(args=f"[{number}, {n}]")])

    await asyncio.gather(*map(some, range(20)))
    return WRITES


async def race_for_keys(store: Store, number: int) -> int:
    won = 0
    for n in range(WRITES):
        (answer,) = await store.insert_unique([new_unique(f"key {n}.")], wait_seconds=10)
        won += isinstance(answer, Inserted)
    return won


async def migrate(store: Store, number: int) -> int:
    return len(await store.migrate())


async def work(store: Store, number: int) -> int:
    """Enqueue some, then claim and settle whatever there is, as a worker would."""
    settled = 0
    await store.insert_tasks([new_task() for _ in range(WRITES // 4)])
    while claims := await store.claim(request(worker_id=f"worker-{number}", limit=7)):
        assert len(await store.renew(claims, worker_id=f"worker-{number}", lease_seconds=60)) == len(claims)
        settled += len(await store.settle([success(claim) for claim in claims]))
    return settled


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "ox.db"
    store = store_at(path)
    await store.open()
    await store.migrate()
    await store.close()
    return path


def store_at(path: Path) -> Store:
    return open_store(f"sqlite:///{path}", make_settings({"synchronous": "NORMAL"}))


@pytest.mark.parametrize("deed", [insert_one_after_another, insert_from_many_coroutines])
async def test_every_insert_of_every_process_lands(crew: Crew, path: Path, deed: Deed):
    assert await crew.do(deed, path) == [WRITES] * PROCESSES
    assert counts(path) == (PROCESSES * WRITES, 0)


async def test_each_key_has_one_winner_among_the_processes(crew: Crew, path: Path):
    assert sum(await crew.do(race_for_keys, path)) == WRITES
    assert counts(path) == (WRITES, WRITES)


async def test_each_row_is_granted_to_one_worker(crew: Crew, path: Path):
    settled = await crew.do(work, path)

    assert sum(settled) == PROCESSES * (WRITES // 4)
    with closing(sqlite3.connect(path)) as connection:
        attempts = connection.execute("SELECT DISTINCT status, attempts, lease_epoch FROM django_ox_oxtask").fetchall()
    assert attempts == [("SUCCESSFUL", 1, 1)]


async def test_processes_that_migrate_a_new_file_at_once_do_it_once(crew: Crew, tmp_path: Path):
    steps = await crew.do(migrate, tmp_path / "new.db")

    assert sorted(steps)[:-1] == [0] * (PROCESSES - 1)
    assert max(steps) > 0
    assert counts(tmp_path / "new.db") == (0, 0)


def counts(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        (tasks,) = connection.execute("SELECT COUNT(*) FROM django_ox_oxtask").fetchone()
        (locks,) = connection.execute("SELECT COUNT(*) FROM oxpull_oxpulluniquelock").fetchone()
    return tasks, locks


class Crew:
    """Processes that do what they're told, all at once."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(PROCESSES)  # kept, since its semaphores go with it
        self._ends = [context.Pipe() for _ in range(PROCESSES)]
        self._processes = [
            context.Process(target=_obey, args=(theirs, number, self._barrier))
            for number, (_, theirs) in enumerate(self._ends)
        ]
        for process in self._processes:
            process.start()

    async def do(self, deed: Deed, path: Path) -> Sequence[int]:
        """What each of them returns."""
        for ours, _ in self._ends:
            ours.send((deed, path))
        answers = [await aside(_received, ours) for ours, _ in self._ends]
        numbers = [answer for answer in answers if isinstance(answer, int)]
        assert numbers == answers, answers
        return numbers

    def dismiss(self) -> None:
        for process in self._processes:
            process.kill()
            process.join(5)


def _received(end: Connection) -> int | str:
    assert end.poll(50), "no answer in time"
    answer: int | str = end.recv()
    return answer


def _obey(orders: Connection, number: int, barrier: Barrier) -> None:
    while True:
        deed, path = orders.recv()
        try:
            orders.send(asyncio.run(_do(deed, path, number, barrier)))
        except BaseException:
            orders.send(traceback.format_exc())


async def _do(deed: Deed, path: Path, number: int, barrier: Barrier) -> int:
    store = store_at(path)
    barrier.wait(40)
    await store.open()
    try:
        return await deed(store, number)
    finally:
        await store.close()


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.dismiss()
