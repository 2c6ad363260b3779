"""Who waits for whom in MariaDB and MySQL, and who must not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.drivers._procedure import Procedure, Result, Step
from oxpull_async.drivers.mysql import claims
from oxpull_async.drivers.mysql.pool import Pool
from oxpull_async.exceptions import LockNotAvailable
from oxpull_async.ports import Attempt, ClaimRequest, Held, Inserted, NewUnique, Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import claimed, ids, inserted, new_task, new_unique, request, success
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.scale import rounds
from tests.servers import MariadbServer, mariadb_server

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]

WAITERS = 10


@pytest.fixture
async def store(migrated_url: str) -> AsyncIterator[Store]:
    async for store in opened(migrated_url):
        yield store


async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, make_settings({"pool_size": 2 * WAITERS}))
    await store.open()
    yield store
    await store.close()


# Unique keys


async def test_when_a_holder_rolls_back_its_waiters_come_in_one_by_one(store: Store, competitor: Competitor):
    watcher = competitor.another()
    for number in range(rounds(small=3, full=30)):
        answers: list[Attempt] = []

        async def enqueue(candidate: NewUnique, answers: list[Attempt] = answers) -> None:
            answers += await store.insert_unique([candidate], wait_seconds=10)

        async with anyio.create_task_group() as group:
            with competitor.holding(new_unique(f"{number}.").key):
                for _ in range(WAITERS):
                    group.start_soon(enqueue, new_unique(f"{number}."))
                await eventually(lambda: watcher.waiting_sessions() == WAITERS)

        assert sorted(type(answer).__name__ for answer in answers) == ["Held"] * (WAITERS - 1) + ["Inserted"]
        assert len({answer.task_id for answer in answers if isinstance(answer, Held)}) == 1
    watcher.close()


async def test_a_short_wait_holds_nobody_up(store: Store, competitor: Competitor):
    with competitor.holding(new_unique("a").key):
        began = time.monotonic()

        with pytest.raises(LockNotAvailable):
            await store.insert_unique([new_unique("a")], wait_seconds=0.03)

        assert time.monotonic() - began < 0.5
    assert competitor.counts() == (0, 0)


async def test_a_short_wait_is_long_enough_for_a_short_transaction(store: Store, competitor: Competitor):
    candidate = new_unique("a")
    competitor.begin()
    competitor.insert_unique(candidate.key)
    async with anyio.create_task_group() as group:

        async def commit() -> None:
            await anyio.sleep(0.05)
            competitor.commit()

        group.start_soon(commit)
        (answer,) = await store.insert_unique([candidate], wait_seconds=0.9)

    assert isinstance(answer, Held)


async def test_a_held_key_is_found_although_its_lock_row_is_locked(store: Store, competitor: Competitor):
    held = new_unique("a")
    await store.insert_unique([held], wait_seconds=1)
    competitor.begin()
    competitor.rows("SELECT * FROM oxpull_oxpulluniquelock WHERE `key` = ? FOR UPDATE", held.key)

    (answer,) = await store.insert_unique([new_unique("a")], wait_seconds=0.03)

    competitor.rollback()
    assert isinstance(answer, Held)
    assert answer.task_id == held.task.id


async def test_keys_beside_one_that_is_not_committed_are_not_waited_for(store: Store, competitor: Competitor):
    with competitor.holding(new_unique("b").key):
        answers = await store.insert_unique([new_unique(key) for key in "ac"], wait_seconds=0.03)

    assert answers == [Inserted(), Inserted()]


@pytest.fixture
def hasty_server() -> Iterator[MariadbServer]:
    """Rolls back the whole transaction where others roll back the statement alone."""
    with mariadb_server({"innodb-rollback-on-timeout": "ON"}, durable=False) as server:
        yield server


@pytest.mark.engines("mariadb")
async def test_a_transaction_that_the_server_dropped_with_a_wait_is_not_gone_on_with(
    hasty_server: MariadbServer, engine: str
):
    async for store in opened(hasty_server.url):
        await store.migrate()
        competitor = Competitor(hasty_server.url)
        with competitor.holding(new_unique("b").key), pytest.raises(LockNotAvailable):
            await store.insert_unique_together([new_unique(key) for key in "abc"], wait_seconds=5, passes=5)

        assert competitor.counts() == (0, 0)
        assert await store.insert_unique([new_unique("b")], wait_seconds=1) == [Inserted()]
        competitor.close()


# Claims


def half_claimed(wanted: ClaimRequest, others: Any) -> Procedure[None]:
    """A claim that has locked its rows, and lets others have their way before it goes on."""
    procedure = claims.claim(wanted)
    step = next(procedure)
    while step.statement.name != "grant_claims":
        step = procedure.send((yield step))
    yield Step(_CALL, {"others": others})
    procedure.close()


class _Call:
    name = "call"


_CALL: Any = _Call()


class _Between:
    """A connection on which a step may be a call of the test's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, step: Step) -> Result:
        if step.statement is _CALL:
            await step.values["others"]()
            return Result((), 0)
        result: Result = await self._connection.execute(step)
        return result


@pytest.mark.parametrize("paths", [["a"], ["a", "b", "c"]], ids=["one path", "three paths"])
async def test_two_claimers_pass_each_other_by(store: Store, migrated_url: str, paths: list[str]):
    for path in paths:
        await store.insert_tasks([new_task(task_path=path) for _ in range(120 // len(paths))])
    pool = Pool(migrated_url, make_settings({}))
    await pool.open()
    got: list[Any] = []

    async def others() -> None:
        for worker in ("second", "third"):
            with anyio.fail_after(0.9):  # less than a wait for a lock takes
                got.append(await store.claim(request(task_paths=paths, limit=40, worker_id=worker)))

    async with pool.connection() as connection:
        between = _Between(connection)
        procedure = half_claimed(request(task_paths=paths, limit=40), others)
        step = next(procedure)
        with pytest.raises(StopIteration):
            while True:
                step = procedure.send(await between.execute(step))
    await pool.close()

    assert [len(claimed) for claimed in got] == [40, 40]
    assert not set(ids(got[0])) & set(ids(got[1]))
    assert len(await store.claim(request(task_paths=paths, limit=100))) == 40


async def test_claims_of_several_paths_take_the_first_of_all_lines(store: Store):
    low = await inserted(store, count=3, task_path="a", priority=-1)
    high = await inserted(store, count=3, task_path="b", priority=1)
    middle = await inserted(store, count=3, task_path="c")

    first = await store.claim(request(task_paths=["a", "b", "c"], limit=5))
    then = await store.claim(request(task_paths=["a", "b", "c"], limit=5))

    assert set(ids(first)) == {*ids(high), *ids(middle)[:2]}
    assert set(ids(then)) == {ids(middle)[2], *ids(low)}


# Rows of others


async def test_rows_that_others_have_not_committed_are_in_nobodys_way(store: Store, competitor: Competitor):
    first, second, third = await claimed(store, count=3)
    competitor.begin()
    competitor.insert_task()
    competitor.insert_unique(new_unique("a").key)
    began = time.monotonic()

    assert await store.renew([first], worker_id=first_worker(), lease_seconds=60) == [first.id]
    assert await store.settle([success(first)]) == [first.id]
    assert await store.release([second], worker_id=first_worker()) == [second.id]
    assert await store.discard([second.id], now=request().now) == [second.id]
    competitor.rollback()

    assert time.monotonic() - began < 0.9
    assert await store.settle([success(third)]) == [third.id]


def first_worker() -> str:
    return request().worker_id


async def test_a_reaper_and_a_renewal_do_not_wait_for_a_row_that_is_being_written(store: Store, competitor: Competitor):
    busy, other = await claimed(store, count=2)
    competitor.begin()
    competitor.rows("SELECT id FROM django_ox_oxtask WHERE id = ? FOR UPDATE", busy.id)
    began = time.monotonic()

    renewed = await store.renew([busy, other], worker_id=first_worker(), lease_seconds=60)
    reaped = await store.reap(lease_seconds=300, limit=100, now=request().now)

    competitor.rollback()
    assert time.monotonic() - began < 0.9
    assert renewed == [other.id]
    assert list(reaped.requeued) == []
