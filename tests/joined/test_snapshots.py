"""What a transaction's snapshot can't show is asked outside of it, within bounds, or told as a race."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from oxpull_async import (
    ConnectionLost,
    LockNotAvailable,
    Oxpull,
    PoolTimeout,
    SerializationFailure,
    StoreError,
    UniqueEnqueueRace,
)
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.joined.calls import hold, key_of, own_rows
from tests.joined.handles import READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, Caller
from tests.scale import rounds

Callers = Callable[[], Awaitable[Caller]]
postgres = pytest.mark.engines("postgres")


class Rechecks:
    """Counts the rechecks, and what they end with."""

    def __init__(self, ox: Oxpull) -> None:
        self._recheck = ox.store.recheck
        self.count = 0
        ox.store.recheck = self  # type: ignore[method-assign]

    async def __call__(self, keys: Any) -> Any:
        self.count += 1
        return await self._recheck(keys)


# The MySQL family has no look that leaves no lock behind, so that there it's asked outside
async def test_a_holder_that_is_as_it_was_is_returned_without_a_further_connection(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str
):
    rechecks = Rechecks(ox)
    holder = hold(competitor, 1)

    await caller.begin(level)
    await caller.look()
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).id == holder
    await caller.commit()

    assert rechecks.count == (1 if (dialect, level) == ("mysql", REPEATABLE_READ) else 0)


@pytest.mark.engines("postgres", "mysql")
async def test_read_committed_never_asks_outside(ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor):
    rechecks = Rechecks(ox)
    holder = hold(competitor, 1)

    await caller.begin(READ_COMMITTED)
    await caller.look()
    competitor.set_task(holder, status="RUNNING")
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).status == "RUNNING"
    competitor.set_task(holder, status="FAILED")
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).created
    await caller.commit()

    assert rechecks.count == 0


async def test_a_holder_that_is_being_written_is_returned_as_it_was_without_waiting(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str
):
    if dialect == "sqlite" or (dialect, level) == ("mysql", SERIALIZABLE):
        pytest.skip("there it has to be waited for")
    holder = hold(competitor, 1)

    await caller.begin(level)
    await caller.look()
    competitor.begin()
    competitor.set_task(holder, status="SUCCESSFUL")
    began = time.monotonic()
    try:
        found = await ox.bind(caller.bindable).enqueue_unique(send, 1)
        waited = time.monotonic() - began
    finally:
        competitor.rollback()
    await caller.order(1)
    await caller.commit()

    assert (found.id, found.status, found.created) == (holder, "READY", False)
    assert waited < 3


# The reference takes it for pending
@postgres
async def test_a_holder_that_was_settled_and_is_being_written_again_is_not_taken_for_pending(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor
):
    holder = hold(competitor, 1)

    await caller.begin(snapshot_level)
    await caller.look()
    competitor.set_task(holder, status="SUCCESSFUL")
    competitor.begin()
    competitor.rows("SELECT 1 FROM django_ox_oxtask WHERE id = ? FOR UPDATE", holder)
    try:
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
    finally:
        competitor.rollback()
    await caller.commit()

    assert (caught.value.holder_id, caught.value.holder_status) == (holder, "SUCCESSFUL")


async def test_several_holders_of_which_one_is_being_written_are_returned_as_they_are(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor, dialect: str
):
    if (dialect, snapshot_level) == ("mysql", SERIALIZABLE):
        pytest.skip("there it has to be waited for")
    holders = [hold(competitor, n) for n in (1, 2, 3)]

    await caller.begin(snapshot_level)
    await caller.look()
    competitor.set_task(holders[2], status="RUNNING")
    competitor.begin()
    competitor.set_task(holders[0], status="SUCCESSFUL")
    try:
        found = await ox.bind(caller.bindable).enqueue_unique_many(send, [(1,), (2,), (3,)])
    finally:
        competitor.rollback()
    await caller.commit()

    assert [result.id for result in found] == holders
    assert [result.status for result in found][:2] == ["READY", "READY"]


async def test_a_winner_that_the_snapshot_cannot_see_is_found_beside_new_keys(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor, isolates_snapshots: bool
):
    _skip_where_every_read_locks(isolates_snapshots, snapshot_level)
    await caller.begin(snapshot_level)
    await caller.look()
    theirs = hold(competitor, 2)
    await caller.order(1)
    results = await ox.bind(caller.bindable).enqueue_unique_many(send, [(1,), (2,), (3,), (2,)])
    await caller.order(2)
    await caller.commit()

    assert [result.created for result in results] == [True, False, True, False]
    assert results[1].id == theirs
    assert own_rows(competitor) == {1, 2}
    assert competitor.locks() == {key_of(1): results[0].id, key_of(2): theirs, key_of(3): results[2].id}


async def test_a_bulk_call_knows_its_own_transactions_tasks_beside_holders_that_others_have_changed(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor, isolates_snapshots: bool
):
    _skip_where_every_read_locks(isolates_snapshots, snapshot_level)
    theirs = hold(competitor, 2)

    await caller.begin(snapshot_level)
    mine = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    competitor.set_task(theirs, status="RUNNING")
    results = await ox.bind(caller.bindable).enqueue_unique_many(send, [(1,), (2,), (3,)])
    await caller.commit()

    assert [(result.id, result.created) for result in results[:2]] == [(mine.id, False), (theirs, False)]
    assert competitor.locks() == {key_of(1): mine.id, key_of(2): theirs, key_of(3): results[2].id}


@postgres
async def test_a_bulk_call_that_meets_a_race_writes_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor
):
    theirs = hold(competitor, 2)

    await caller.begin(snapshot_level)
    await caller.look()
    competitor.set_task(theirs, status="FAILED")
    await caller.order(1)
    with pytest.raises(UniqueEnqueueRace) as caught:
        await ox.bind(caller.bindable).enqueue_unique_many(send, [(1,), (2,), (3,)])
    await caller.order(2)
    await caller.commit()

    assert (caught.value.holder_id, caught.value.holder_status) == (theirs, "FAILED")
    assert competitor.locks() == {key_of(2): theirs}
    assert competitor.counts() == (1, 1)
    assert own_rows(competitor) == {1, 2}


@postgres
async def test_the_race_says_what_has_happened_at_which_level_and_what_to_repeat(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor
):
    holder = hold(competitor, 1)

    await caller.begin(snapshot_level)
    await caller.look()
    competitor.set_task(holder, status="SUCCESSFUL")
    words = r"proof\.send.* is SUCCESSFUL since .*Nothing was written, .*usable; end it and repeat all of it"
    with pytest.raises(UniqueEnqueueRace, match=words) as caught:
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.rollback()

    race = caught.value
    assert (race.reason, race.retry, race.attempts) == ("snapshot", "transaction", 1)
    assert (race.holder_id, race.holder_status) == (holder, "SUCCESSFUL")
    assert race.isolation_level == snapshot_level.lower()
    assert isinstance(race.__cause__, SerializationFailure)
    assert race.__cause__.code == "40001"
    assert race.__cause__.__cause__ is not None  # the driver's own


# The reference raises after five passes at REPEATABLE READ, and the bare 40001 at SERIALIZABLE
@postgres
async def test_a_winner_that_was_settled_again_is_told_with_its_serialization_failure(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor
):
    await caller.begin(snapshot_level)
    await caller.look()
    holder = hold(competitor, 1, status="FAILED")
    with pytest.raises(UniqueEnqueueRace) as caught:
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.order(1)
    await caller.commit()

    assert (caught.value.holder_id, caught.value.holder_status) == (holder, "FAILED")
    assert isinstance(caught.value.__cause__, SerializationFailure)
    assert own_rows(competitor) == {1}
    assert competitor.counts() == (1, 1)


@postgres
async def test_a_migration_that_waits_for_the_callers_snapshot_is_not_waited_for(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor,
    somebody_waits: Callable[[], Awaitable[Any]],
):  # fmt: skip
    holder = hold(competitor, 1)

    await caller.begin(snapshot_level)
    await caller.query("SELECT id FROM django_ox_oxtask")
    competitor.set_task(holder, status="SUCCESSFUL")
    competitor.begin()
    competitor.run("SET LOCAL lock_timeout = '10s'")
    async with anyio.create_task_group() as group:
        group.start_soon(aside, competitor.run, "ALTER TABLE django_ox_oxtask ADD COLUMN passing integer")
        await somebody_waits()
        began = time.monotonic()
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
        waited = time.monotonic() - began
        await caller.order(1)
        await caller.commit()
    competitor.rollback()

    assert waited < 3
    assert caught.value.reason == "recheck_failed"
    assert isinstance(caught.value.__cause__, LockNotAvailable)
    assert own_rows(competitor) == {1}


@postgres
async def test_a_recheck_that_is_refused_is_told_as_a_race(
    ox: Oxpull, send: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor, unused_port: int
):
    await caller.begin(snapshot_level)
    await caller.look()
    hold(competitor, 1)
    redirect_rechecks(ox, unused_port)
    began = time.monotonic()
    with pytest.raises(UniqueEnqueueRace) as caught:
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    waited = time.monotonic() - began
    await caller.order(1)
    await caller.commit()

    assert waited < 2
    assert caught.value.reason == "recheck_failed"
    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert isinstance(caught.value.__cause__.__cause__, OSError)
    assert own_rows(competitor) == {1}
    assert competitor.counts() == (1, 1)


@postgres
@pytest.mark.parametrize("way", ["asyncpg", "postgresql+psycopg-session"], indirect=True)
async def test_a_recheck_that_gets_no_answer_is_told_as_a_race_within_its_bound(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as silent:
        await caller.begin(REPEATABLE_READ)
        await caller.look()
        hold(competitor, 1)
        redirect_rechecks(ox, silent.extra(anyio.abc.SocketAttribute.local_port))
        began = time.monotonic()
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
        waited = time.monotonic() - began
    await caller.order(1)
    await caller.commit()

    assert 1.5 < waited < 8
    assert caught.value.reason == "recheck_failed"
    assert isinstance(caught.value.__cause__, StoreError)
    assert own_rows(competitor) == {1}


@postgres
async def test_a_recheck_needs_no_connection_of_any_pool(
    url: str, caller: Caller, snapshot_level: str, competitor: Competitor
):
    async with Oxpull(url, pool_size=1, pool_timeout=2) as ox:
        send = ox.reference("proof.send", unique=True)
        holder = hold(competitor, 1)
        await caller.begin(snapshot_level)
        await ox.bind(caller.bindable).enqueue(ox.reference("proof.work"))  # its database has been compared
        competitor.set_task(holder, status="RUNNING")
        async with ox.transaction() as busy:
            await busy.enqueue(ox.reference("proof.work"))
            began = time.monotonic()
            found = await ox.bind(caller.bindable).enqueue_unique(send, 1)
            waited = time.monotonic() - began
        await caller.commit()

    assert (found.id, found.status) == (holder, "RUNNING")
    assert waited < 5
    assert len(competitor.sessions()) <= 1  # the caller's


@postgres
@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_fifty_rechecks_at_once_open_few_connections(
    ox: Oxpull, send: AnyTask, new_caller: Callers, url: str, competitor: Competitor
):
    racers = rounds(small=30, full=50)
    callers = [await new_caller() for _ in range(racers)]
    holder = hold(competitor, 1)
    for caller in callers:
        await caller.begin(REPEATABLE_READ)
        await ox.bind(caller.bindable).enqueue_unique(send, 2 + callers.index(caller))
    competitor.set_task(holder, status="RUNNING")
    before = len(competitor.sessions())
    pool = room_pool(ox)
    recheck, under_way, most = pool._recheck, 0, 0
    found = []

    async def counted(procedure: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await recheck(procedure)
        finally:
            under_way -= 1

    pool._recheck = counted

    async def enqueue(caller: Caller) -> None:
        found.append(await ox.bind(caller.bindable).enqueue_unique(send, 1))

    async with anyio.create_task_group() as group:
        for caller in callers:
            group.start_soon(enqueue, caller)
    for caller in callers:
        await caller.commit()

    assert {(result.id, result.status) for result in found} == {(holder, "RUNNING")}
    assert len(found) == racers
    assert most <= 4
    await eventually(lambda: len(competitor.sessions()) == before)


@postgres
@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_a_server_without_a_connection_to_spare_makes_it_a_race(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin(REPEATABLE_READ)
    await caller.look()
    hold(competitor, 1)
    competitor.run(f"ALTER DATABASE {competitor.rows('SELECT current_database()')[0][0]} CONNECTION LIMIT 1")
    competitor.run("CREATE ROLE plain LOGIN")
    try:
        as_plain_user(ox)
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
    finally:
        competitor.run(f"ALTER DATABASE {competitor.rows('SELECT current_database()')[0][0]} CONNECTION LIMIT -1")
        competitor.run("DROP ROLE plain")
    await caller.order(1)
    await caller.commit()

    assert isinstance(caught.value.__cause__, StoreError)
    assert caught.value.__cause__.code == "53300"
    assert own_rows(competitor) == {1}


@postgres
@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_who_gets_no_turn_for_a_recheck_is_told_so_within_its_bound(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    holder = hold(competitor, 1)
    await caller.begin(REPEATABLE_READ)
    await caller.look()
    competitor.set_task(holder, status="RUNNING")
    turns = room_pool(ox)._rechecks
    for _ in range(4):
        turns.acquire_nowait()
    try:
        with pytest.raises(UniqueEnqueueRace) as caught, anyio.fail_after(4):
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
    finally:
        for _ in range(4):
            turns.release()

    assert isinstance(caught.value.__cause__, PoolTimeout)
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).id == holder
    await caller.commit()


@pytest.mark.engines("sqlite")
async def test_a_snapshot_that_others_have_written_past_is_told_at_once(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await caller.look()
    hold(competitor, 1)
    began = time.monotonic()
    with pytest.raises(UniqueEnqueueRace, match=r"repeat all of it \(after BEGIN IMMEDIATE") as caught:
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
    waited = time.monotonic() - began
    await caller.rollback()

    assert waited < 3
    assert (caught.value.reason, caught.value.retry) == ("serialization", "transaction")
    assert isinstance(caught.value.__cause__, SerializationFailure)
    assert caught.value.__cause__.code == 517


def _skip_where_every_read_locks(isolates_snapshots: bool, level: str) -> None:
    if isolates_snapshots and level == SERIALIZABLE:
        pytest.skip("there it costs the transaction to read a row that others have changed")


def room_pool(ox: Oxpull) -> Any:
    store: Any = ox.store
    return store._pool


def redirect_rechecks(ox: Oxpull, port: int) -> None:
    """From now on the store's new connections go to another port; those that it has stay."""
    pool = room_pool(ox)
    server, _, rest = pool._url.rpartition(":")
    pool._url = f"{server}:{port}/{rest.partition('/')[2]}"


def as_plain_user(ox: Oxpull) -> None:
    """From now on the store's new connections are no superuser's, for whom the limits hold."""
    pool = room_pool(ox)
    pool._url = pool._url.replace("oxpull:oxpull@", "plain@")
