"""What MariaDB and MySQL are left with when connections die, statements are given up, and values are large."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers.mysql import tasks, unique
from oxpull_async.drivers.mysql.pool import Pool
from oxpull_async.exceptions import StatementTimeout, StoreError, UniqueViolation
from oxpull_async.ports import Held, Inserted, NewUnique, Store
from tests.conformance.rows import new_task, new_unique, request, success
from tests.eventually import eventually
from tests.integration.cancelling import cancelled_at
from tests.integration.competitor import Competitor
from tests.integration.mysql_pools import (
    Opened,
    answered,
    fill,
    is_running,
    kill_all,
    opened,
    pool,
    sleeping,
    store,
)
from tests.scale import rounds

__all__ = ["opened", "pool", "store"]

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]


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


async def test_a_client_that_goes_in_the_middle_leaves_lock_and_task_or_neither(pool: Pool, competitor: Competitor):
    """The server goes on with the rest of what it was sent, although it can't answer any more."""
    pool._orphans.threads_are_the_servers = False  # nobody stops it
    candidates = [new_unique(f"{number}") for number in range(rounds(small=60, full=1_000))]

    async def insert(candidate: NewUnique, at: int) -> int:
        pool._discard_free()  # so that each call has the same awaits: a connection's, the look's, the transaction's
        return (await cancelled_at(pool.write(unique.insert([candidate], 10)), at, "waiting", "task")).awaits

    last = await insert(candidates.pop(), 1_000)
    for candidate in candidates:
        await insert(candidate, last)

    pool._discard_free()
    await eventually(lambda: competitor.sessions() == [])
    assert set(competitor.locks().values()) == set(competitor.statuses())


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
