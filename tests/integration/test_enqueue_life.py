"""Opening, closing, event loops, and a pool that runs dry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable

import anyio
import pytest
import uvloop

from oxpull_async import (
    EnqueueResult,
    InvalidSettings,
    NotOpen,
    Oxpull,
    PoolTimeout,
    StoreError,
    TaskResultDoesNotExist,
    TaskStatus,
)
from oxpull_async.core.keys import unique_key
from oxpull_async.ports import Attempt, Inserted
from tests.conformance.rows import new_unique
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside

PATH = "proof.tasks.send"


def test_one_object_serves_one_event_loop_after_another(migrated_url: str, competitor: Competitor):
    ox = Oxpull(migrated_url)  # as at import: there is no loop yet
    send = ox.reference(PATH, unique=True)

    async def once() -> EnqueueResult:
        async with ox:
            return await send.enqueue(1)

    first = asyncio.run(once())
    second = asyncio.run(once())

    assert (first.created, second.created) == (True, False)
    assert first.id == second.id
    assert competitor.counts() == (1, 1)


def test_an_object_that_is_open_in_one_loop_says_so_in_another(migrated_url: str):
    ox = Oxpull(migrated_url)
    with asyncio.Runner() as here:
        here.run(ox.open())

        with asyncio.Runner() as there, pytest.raises(NotOpen, match="another event loop"):
            there.run(ox.reference(PATH).enqueue(1))

        assert here.run(ox.reference(PATH).enqueue(1)).created
        here.run(ox.close())


def test_an_object_that_is_open_in_one_loop_is_neither_opened_nor_closed_in_another(migrated_url: str):
    ox = Oxpull(migrated_url)
    with asyncio.Runner() as here, asyncio.Runner() as there:
        here.run(ox.open())

        with pytest.raises(NotOpen, match="another event loop"):
            there.run(ox.open())
        with pytest.raises(NotOpen, match="another event loop"):
            there.run(ox.close())

        assert here.run(ox.reference(PATH).enqueue(1)).created
        here.run(ox.close())


def test_where_the_loop_was_closed_or_the_process_forked_it_opens_anew_and_harms_nobody(migrated_url: str):
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", LEFT_OPEN, migrated_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, complaints = process.communicate(timeout=60)

    assert (process.returncode, out.split()) == (0, [b"True"] * 4), complaints.decode()


LEFT_OPEN = f"""
import asyncio, os, sys
from oxpull_async import NotOpen, Oxpull

ox = Oxpull(sys.argv[1])
send = ox.reference("{PATH}")

async def in_child():
    async with ox:
        print((await send.enqueue(2)).created, flush=True)

async def forget():
    await ox.open()
    print((await send.enqueue(0)).created, flush=True)

asyncio.run(forget())
assert not ox.is_open
runner = asyncio.Runner()
runner.run(ox.open())
print(runner.run(send.enqueue(1)).created, flush=True)
if not (child := os.fork()):
    asyncio.set_event_loop(None)
    asyncio.run(in_child())
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(runner.run(asyncio.wait_for(send.enqueue(3), 20)).created, flush=True)
runner.run(ox.close())
"""


def test_the_event_loop_of_production_servers_does_as_well(migrated_url: str, competitor: Competitor):
    ox = Oxpull(migrated_url)
    send = ox.task(_sent)

    async def crowd_wait_and_run() -> None:
        async with ox:
            results = await asyncio.gather(*[send.enqueue_unique(n % 10) for n in range(50)])
            assert len({result.id for result in results}) == 10
            async with ox.transaction() as transaction:
                await transaction.enqueue_unique_many(send, [(10,), (11,)])
            with competitor.holding(unique_key("default", send.path, "default", [99], {})):
                with anyio.move_on_after(0.2) as scope:
                    await send.enqueue_unique(99)
                waiting = asyncio.ensure_future(send.enqueue_unique(99))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert scope.cancelled_caught
            assert await ox.run_until_idle() == 12

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(crowd_wait_and_run())

    assert set(competitor.statuses().values()) == {"SUCCESSFUL"}
    assert competitor.counts() == (12, 0)


async def _sent(n: int) -> None: ...


# F93
async def test_who_forgot_to_open_is_told_how(migrated_url: str):
    ox = Oxpull(migrated_url)
    task = ox.reference(PATH)

    for call in (
        task.enqueue(1), task.enqueue_unique(1), task.enqueue_many([]), task.enqueue_unique_many([]),
        ox.get_result("x" * 36), ox.migrate(), ox.prune(), ox.reap(),
    ):  # fmt: skip
        with pytest.raises((NotOpen, TaskResultDoesNotExist), match="(not open.*lifespan|UUID)"):
            await call


async def test_open_and_close_may_be_repeated(migrated_url: str):
    ox = Oxpull(migrated_url)
    assert await ox.open() is ox
    await ox.open()
    async with ox.running():
        assert (await ox.reference(PATH).enqueue(1)).created
    assert (await ox.reference(PATH).enqueue(1)).created

    await ox.close()
    await ox.close()

    with pytest.raises(NotOpen):
        await ox.reference(PATH).enqueue(1)
    async with ox.running():
        assert (await ox.reference(PATH).enqueue(1)).created
    with pytest.raises(NotOpen):
        await ox.reference(PATH).enqueue(1)


async def test_several_may_open_one_object_at_once(migrated_url: str):
    ox = Oxpull(migrated_url)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ox.open)

    assert (await ox.reference(PATH).enqueue(1)).created
    await ox.close()


async def test_without_a_database_nothing_opens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OXPULL_DATABASE_URL", raising=False)

    with pytest.raises(InvalidSettings, match="OXPULL_DATABASE_URL"):
        await Oxpull().open()


async def test_the_database_may_come_from_the_environment(migrated_url: str, monkeypatch: pytest.MonkeyPatch):
    ox = Oxpull()
    monkeypatch.setenv("OXPULL_DATABASE_URL", migrated_url)

    async with ox:
        assert (await ox.reference(PATH).enqueue(1)).created


async def test_a_lifespan_opens_and_closes(migrated_url: str):
    ox = Oxpull(migrated_url)
    task = ox.reference(PATH)

    async with ox.lifespan(object()) as state:
        assert state == {"ox": ox}
        assert (await task.enqueue(1)).created

    with pytest.raises(NotOpen):
        await task.enqueue(1)


async def test_calls_under_way_are_finished_before_it_closes(migrated_url: str, competitor: Competitor):
    ox = Oxpull(migrated_url)
    await ox.open()
    task = ox.reference(PATH, unique=True)
    results: list[EnqueueResult] = []
    refused: list[NotOpen] = []

    async def enqueue(number: int) -> None:
        try:
            results.append(await task.enqueue(number))
        except NotOpen as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(enqueue, number)
        await anyio.lowlevel.checkpoint()
        group.start_soon(ox.close)

    assert len(results) + len(refused) == 50
    assert competitor.counts() == (len(results), len(results))


@pytest.mark.engines("postgres", "mysql")
async def test_a_pool_that_runs_dry_is_told_in_time_and_recovers(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url, pool_size=1, pool_timeout=0.2) as ox:
        unique = new_unique("a")
        answers: list[Attempt] = []

        async def wait_for_the_key() -> None:
            answers.extend(await ox.store.insert_unique([unique], wait_seconds=10))

        async with anyio.create_task_group() as group:
            with competitor.holding(unique.key):
                group.start_soon(wait_for_the_key)
                await eventually(lambda: aside(_someone_waits, competitor))
                began = time.monotonic()
                with pytest.raises(PoolTimeout, match="pool_size"):
                    await ox.get_result(unique.task.id)
                assert time.monotonic() - began < 8

        assert answers == [Inserted()]
        assert (await ox.get_result(unique.task.id)).status is TaskStatus.READY


@pytest.mark.engines("postgres", "mysql")
async def test_it_closes_in_time_although_a_statement_waits_and_a_caller_waits_for_a_connection(
    migrated_url: str, competitor: Competitor
):
    ox = Oxpull(migrated_url, pool_size=1, close_timeout=0.5)
    await ox.open()
    unique = new_unique("a")
    failures: list[Exception] = []

    async def fail(call: Awaitable[object]) -> None:
        try:
            await call
        except (StoreError, NotOpen) as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        with competitor.holding(unique.key):
            group.start_soon(fail, ox.store.insert_unique([unique], wait_seconds=20))
            await eventually(lambda: aside(_someone_waits, competitor))
            group.start_soon(fail, ox.get_result(unique.task.id))
            await anyio.lowlevel.checkpoint()
            began = time.monotonic()
            await ox.close()
            assert time.monotonic() - began < 15

    assert len(failures) == 2
    await eventually(lambda: competitor.open_transactions() == 0)
    # A server may not notice that a client has gone while it waits, and then write what was asked of it.
    await eventually(lambda: competitor.counts() in ((0, 0), (1, 1)))


@pytest.mark.engines("postgres", "mysql")
async def test_connections_that_the_server_has_closed_are_replaced_in_silence(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, pool_size=5) as ox:
        send, plain = ox.reference(PATH, unique=True), ox.reference(PATH)
        async with anyio.create_task_group() as group:  # so that there are several
            for number in range(20):
                group.start_soon(send.enqueue_many, [(number,)])
        for number, call in enumerate([send.enqueue, plain.enqueue, send.enqueue_unique]):
            await aside(_kill_all, competitor)
            await call(100 + number)
        await aside(_kill_all, competitor)
        await plain.enqueue_many([(103,)])

    assert competitor.counts() == (24, 22)


def _someone_waits(competitor: Competitor) -> bool:
    with competitor.another() as observer:
        return observer.waiting_sessions() > 0


def _kill_all(competitor: Competitor) -> None:
    for session in competitor.sessions():
        competitor.kill(session)
