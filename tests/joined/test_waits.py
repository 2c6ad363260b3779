"""How long an enqueue in a caller's transaction waits for a competitor, and what it finds when the wait ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from oxpull_async import (
    DeadlockDetected,
    EnqueueResult,
    LockNotAvailable,
    Oxpull,
    TransactionRolledBack,
    UniqueEnqueueRace,
)
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor, aside
from tests.joined.calls import SEND, hold, key_of, own_rows
from tests.joined.handles import READ_COMMITTED, Caller

servers = pytest.mark.engines("postgres", "mysql")
Seen = Callable[[], Awaitable[Any]]
Callers = Callable[[], Awaitable[Caller]]

IMPATIENCE = {
    "postgres": "SET LOCAL lock_timeout = '200ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "sqlite": "PRAGMA busy_timeout = 200",
}
PATIENCE = {
    "postgres": "SELECT current_setting('lock_timeout')",
    "mysql": "SELECT @@innodb_lock_wait_timeout",
    "sqlite": "PRAGMA busy_timeout",
}
CODES = {"postgres": "55P03", "mysql": 1205, "sqlite": 5}


async def test_a_wait_that_the_callers_own_setting_ends_is_a_race_and_the_transaction_goes_on(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str
):
    await caller.begin(level)
    await caller.run(IMPATIENCE[dialect]) if dialect != "sqlite" else await caller.query(IMPATIENCE[dialect])
    if dialect != "sqlite":
        await caller.order(1)
    with competitor.holding(key_of(1)):
        began = time.monotonic()
        with pytest.raises(UniqueEnqueueRace, match=r"repeat the enqueue") as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
        waited = time.monotonic() - began
    await caller.order(2)
    again = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.commit()

    race = caught.value
    assert 0.1 < waited < 5
    assert (race.reason, race.retry) == ("lock_wait", "call")
    assert isinstance(race.__cause__, LockNotAvailable)
    assert race.__cause__.code == CODES[dialect]
    assert again.created
    assert own_rows(competitor) == ({2} if dialect == "sqlite" else {1, 2})
    assert competitor.locks() == {key_of(1): again.id}


# `using(wait=…)`
@servers
async def test_a_wait_that_the_call_bounds_is_a_race_and_the_callers_own_bound_is_put_back(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str
):
    await caller.begin(level)
    (before,) = await caller.query(PATIENCE[dialect])
    await caller.order(1)
    with competitor.holding(key_of(1)):
        began = time.monotonic()
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send.using(wait=0.1), 1)
        waited = time.monotonic() - began
    (after_a_race,) = await caller.query(PATIENCE[dialect])
    new = await ox.bind(caller.bindable).enqueue_unique(send.using(wait=0.1), 1)
    found = await ox.bind(caller.bindable).enqueue_unique(send.using(wait=0.1), 1)
    (after_all,) = await caller.query(PATIENCE[dialect])
    await caller.commit()

    assert 0.05 < waited < 5
    assert caught.value.reason == "lock_wait"
    assert before == after_a_race == after_all
    assert (new.created, found.created, found.id) == (True, False, new.id)
    assert own_rows(competitor) == {1}


@pytest.mark.parametrize("way", ["asyncpg", "postgresql+asyncpg-connection"], indirect=True)
@pytest.mark.parametrize("setting", ["SET lock_timeout = '7s'", "SET LOCAL lock_timeout = '3s'"])
async def test_a_bound_of_the_callers_session_or_transaction_outlives_ours(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, setting: str
):
    hold(competitor, 2)

    await caller.begin()
    await caller.run(setting)
    (before,) = await caller.query(PATIENCE["postgres"])
    for call in (1, 2):
        await ox.bind(caller.bindable).enqueue_unique(send.using(wait=1), call)
        await ox.bind(caller.bindable).enqueue_unique(send, call)
    (after,) = await caller.query(PATIENCE["postgres"])
    await caller.commit()
    (later,) = await caller.query(PATIENCE["postgres"])

    assert before == after
    assert later == (before if "LOCAL" not in setting else ("0",))


@servers
async def test_a_competitor_that_rolls_back_leaves_its_key_to_who_waits(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, somebody_waits: Seen
):
    await caller.begin(level)
    await caller.order(1)
    competitor.begin()
    hold(competitor, 1)
    result = await _while_waiting(ox, send, caller, somebody_waits, competitor.rollback)
    await caller.commit()

    assert result.created
    assert competitor.locks() == {key_of(1): result.id}
    assert competitor.counts() == (1, 1)
    assert own_rows(competitor) == {1}


@servers
async def test_a_competitor_that_commits_while_we_wait_is_found_at_every_level(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, somebody_waits: Seen,
    isolates_snapshots: bool,
):  # fmt: skip
    await caller.begin(level)
    await caller.order(1)
    competitor.begin()
    holder = hold(competitor, 1)
    result = await _unless_rolled_back(_while_waiting(ox, send, caller, somebody_waits, competitor.commit))
    if result is None:
        assert isolates_snapshots and level != READ_COMMITTED
        await _everything_is_undone(caller, competitor)
        return
    await caller.order(2)
    await caller.commit()

    assert (result.id, result.created) == (holder, False)
    assert competitor.counts() == (1, 1)
    assert own_rows(competitor) == {1, 2}


@servers
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_an_operators_retry_in_flight_is_waited_for_then_believed(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, somebody_waits: Seen,
    isolates_snapshots: bool, end: str,
):  # fmt: skip
    failed = hold(competitor, 1, status="FAILED")

    await caller.begin(level)
    await caller.order(1)
    competitor.begin()
    competitor.set_task(failed, status="READY")
    result = await _unless_rolled_back(_while_waiting(ox, send, caller, somebody_waits, getattr(competitor, end)))
    if result is None:
        assert isolates_snapshots and level != READ_COMMITTED and end == "commit"
        await _everything_is_undone(caller, competitor)
        return
    await caller.commit()

    assert result.created == (end == "rollback")
    assert (result.id == failed) == (end == "commit")
    assert competitor.locks() == {key_of(1): result.id}
    assert own_rows(competitor) == {1}


@servers
async def test_a_settled_holder_whose_key_was_taken_over_cannot_be_retried_until_the_caller_is_done(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    failed = hold(competitor, 1, status="FAILED")

    await caller.begin(level)
    await ox.bind(caller.bindable).enqueue_unique(send, 1)
    competitor.be_impatient()
    with pytest.raises(Exception, match=r"lock timeout|Lock wait timeout"):
        competitor.set_task(failed, status="READY")
    await caller.rollback()

    competitor.set_task(failed, status="READY")
    assert competitor.locks() == {key_of(1): failed}


@servers
async def test_the_wait_of_one_transaction_holds_up_no_other_callers(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, somebody_waits: Seen
):
    stuck, free = await new_caller(), await new_caller()
    await stuck.begin()
    await free.begin()
    results: list[EnqueueResult] = []

    async def wait() -> None:
        results.append(await ox.bind(stuck.bindable).enqueue_unique(send, 1))

    competitor.begin()
    hold(competitor, 1)
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await somebody_waits()
        assert (await ox.bind(free.bindable).enqueue_unique(send, 2)).created
        await free.commit()
        assert (await send.enqueue(3)).created
        await aside(competitor.rollback)
    await stuck.commit()

    assert results[0].created
    assert competitor.counts() == (3, 3)


@pytest.mark.engines("postgres")
@pytest.mark.usefixtures("few")
async def test_a_deadlock_that_ends_with_the_competitor_is_repeated_and_costs_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, somebody_waits: Seen
):
    low, high = sorted((key_of(1), key_of(2)))
    numbers = {key_of(1): 1, key_of(2): 2}
    await caller.begin(level)
    await caller.order(1)
    # Looked for once in a wait, so the competitor must be waiting by then.
    await caller.run("SET LOCAL deadlock_timeout = '2s'")
    competitor.begin()
    competitor.run("SET LOCAL deadlock_timeout = '50s'")
    competitor.insert_unique(high, task_path=SEND, args=f"[{numbers[high]}]")
    results: list[EnqueueResult] = []

    async def enqueue_both() -> None:
        calls = [(numbers[low],), (numbers[high],)]
        results.extend(await ox.bind(caller.bindable).enqueue_unique_many(send, calls))

    async with anyio.create_task_group() as group:
        group.start_soon(enqueue_both)
        await somebody_waits()  # holds the low key, wants the high one
        await aside(competitor.insert_unique, low)  # until the caller is the deadlock's victim
        await aside(competitor.commit)
    await caller.commit()

    assert [result.created for result in results] == [False, False]
    assert competitor.counts() == (2, 2)
    assert own_rows(competitor) == {1}


@pytest.mark.engines("postgres")
@pytest.mark.usefixtures("few")
async def test_a_deadlock_that_stays_is_a_race_and_the_transaction_goes_on(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, somebody_waits: Seen
):
    await caller.begin(READ_COMMITTED)
    await caller.order(1)
    await caller.run("SET LOCAL deadlock_timeout = '50ms'")
    mine = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    competitor.begin()
    competitor.run("SET LOCAL deadlock_timeout = '30s'")
    hold(competitor, 2)
    with pytest.raises(UniqueEnqueueRace) as caught:
        async with anyio.create_task_group() as group:

            async def deadlock() -> None:
                # Theirs waits until the caller's commit.
                with pytest.raises(Exception, match="duplicate key"):
                    await aside(competitor.insert_unique, key_of(1))
                await aside(competitor.rollback)

            group.start_soon(deadlock)
            await somebody_waits()
            try:
                await ox.bind(caller.bindable).enqueue_unique(send, 2)
            except UniqueEnqueueRace as race:
                await caller.order(2)
                await caller.commit()
                error = race
        raise error

    assert (caught.value.reason, caught.value.retry) == ("deadlock", "call")
    assert isinstance(caught.value.__cause__, DeadlockDetected)
    assert competitor.locks() == {key_of(1): mine.id}
    assert own_rows(competitor) == {1, 2}


@pytest.mark.engines("mysql")
async def test_a_deadlock_that_costs_the_whole_transaction_is_told_as_such(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, somebody_waits: Seen
):
    await caller.begin(READ_COMMITTED)
    await caller.order(1)
    await ox.bind(caller.bindable).enqueue_unique(send, 1)
    competitor.begin()
    for n in range(100, 150):  # the server ends whoever has written less
        competitor.run("INSERT INTO orders (n) VALUES (?)", n)
    theirs = hold(competitor, 2)
    waiting = asyncio.ensure_future(ox.bind(caller.bindable).enqueue_unique(send, 2))
    await somebody_waits()
    also_theirs = await aside(hold, competitor, 1)
    with pytest.raises(TransactionRolledBack, match=r"Deadlock.*begin again and repeat all of it") as caught:
        await waiting
    await aside(competitor.commit)
    await caller.rollback()
    assert isinstance(caught.value.__cause__, DeadlockDetected)
    assert own_rows(competitor) == set(range(100, 150))
    assert competitor.locks() == {key_of(1): also_theirs, key_of(2): theirs}

    await caller.begin(READ_COMMITTED)
    assert not (await ox.bind(caller.bindable).enqueue_unique(send, 2)).created
    await caller.rollback()


async def _while_waiting(
    ox: Oxpull, send: AnyTask, caller: Caller, somebody_waits: Seen, deed: Callable[[], None]
) -> EnqueueResult:
    """What the caller's enqueue of `SEND(1)` gets, which waits until `deed` is done."""
    waiting = asyncio.ensure_future(ox.bind(caller.bindable).enqueue_unique(send, 1))
    await somebody_waits()
    await aside(deed)
    return await waiting


async def _unless_rolled_back(waiting: Awaitable[EnqueueResult]) -> EnqueueResult | None:
    """Where snapshots are isolated, what a competitor commits while we wait is a change that costs the transaction."""
    try:
        return await waiting
    except TransactionRolledBack:
        return None


async def _everything_is_undone(caller: Caller, competitor: Competitor) -> None:
    await caller.rollback()
    assert own_rows(competitor) == set()
