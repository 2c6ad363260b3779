"""What is enqueued in a caller's transaction commits with its rows, rolls back with them, and is nobody's till then."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from oxpull_async import Call, Oxpull
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import SEND, hold, key_of, own_rows
from tests.joined.handles import Caller


async def test_a_unique_enqueue_commits_with_the_callers_rows(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    await caller.order(1)
    result = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.order(2)
    assert competitor.counts() == (0, 0)
    assert own_rows(competitor) == set()
    await caller.commit()

    assert result.created
    assert competitor.locks() == {key_of(1): result.id}
    assert competitor.statuses() == {result.id: "READY"}
    assert own_rows(competitor) == {1, 2}


async def test_a_unique_enqueue_rolls_back_with_the_callers_rows(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    await caller.order(1)
    await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.rollback()

    assert competitor.counts() == (0, 0)
    assert own_rows(competitor) == set()
    assert (await send.enqueue(1)).created
    assert competitor.counts() == (1, 1)


# SQLAlchemy hasn't begun on the server yet, and the sqlite3 module's legacy mode hasn't begun at all
async def test_an_enqueue_that_is_the_transactions_first_statement_rolls_back_with_it(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.rollback()

    assert competitor.counts() == (0, 0)


async def test_a_duplicate_that_is_the_transactions_first_statement_leaves_what_follows_to_the_caller(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    holder = hold(competitor, 1)

    await caller.begin(level)
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).id == holder
    await caller.order(1)
    await caller.rollback()

    assert own_rows(competitor) == set()
    assert competitor.counts() == (1, 1)


async def test_plain_and_bulk_enqueues_commit_and_roll_back_with_the_callers_rows(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    work = ox.reference("proof.work")
    for end in (caller.rollback, caller.commit):
        await caller.begin(level)
        bound = ox.bind(caller.bindable)
        await caller.order(1)
        one = await bound.enqueue(work, 1)
        many = await bound.enqueue_many(work, [(2,), Call((3,), {"again": True})])
        unique = await bound.enqueue_unique_many(send, [(1,), (2,)])
        assert await bound.enqueue_many(work, []) == []
        assert competitor.counts() == (0, 0)
        await end()

    written = [one, *many, *unique]
    assert all(result.created for result in written)
    assert set(competitor.statuses()) == {result.id for result in written}
    assert competitor.locks() == {key_of(1): unique[0].id, key_of(2): unique[1].id}


async def test_duplicates_cost_the_caller_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    holders = {n: hold(competitor, n) for n in (1, 2, 3)}

    await caller.begin(level)
    for n in (1, 2, 3):
        await caller.order(n)
        found = await ox.bind(caller.bindable).enqueue_unique(send, n)
        assert (found.id, found.created) == (holders[n], False)
    await caller.order(4)
    await caller.commit()

    assert own_rows(competitor) == {1, 2, 3, 4}
    assert competitor.counts() == (3, 3)


async def test_a_duplicate_of_the_same_transaction_finds_its_own_task(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    bound = ox.bind(caller.bindable)
    first = await bound.enqueue_unique(send, 1)
    again = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    both = await bound.enqueue_unique_many(send, [(2,), (1,), (2,)])
    await caller.commit()

    assert (again.id, again.created) == (first.id, False)
    assert [result.created for result in both] == [True, False, False]
    assert [result.id for result in both] == [both[0].id, first.id, both[0].id]
    assert competitor.locks() == {key_of(1): first.id, key_of(2): both[0].id}


async def test_a_duplicate_returns_the_stored_row_whatever_it_asked_for(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    hold(competitor, 1, status="RUNNING", priority=7)

    await caller.begin(level)
    found = await ox.bind(caller.bindable).enqueue_unique(send.using(priority=9, run_after=60), 1)
    await caller.rollback()

    assert (found.status, found.priority, found.run_after, found.args) == ("RUNNING", 7, None, [1])


async def test_an_enqueue_inside_the_callers_savepoint_is_undone_with_it(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    held = hold(competitor, 2)

    await caller.begin(level)
    await caller.order(1)
    await caller.run("SAVEPOINT theirs")
    undone = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 2)).id == held
    await caller.order(2)
    await caller.run("ROLLBACK TO SAVEPOINT theirs")
    kept = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.run("RELEASE SAVEPOINT theirs")
    await caller.commit()

    assert undone.created
    assert kept.created
    assert own_rows(competitor) == {1}
    assert competitor.locks() == {key_of(1): kept.id, key_of(2): held}


async def test_an_enqueue_inside_the_callers_savepoint_is_kept_with_it(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    await caller.run("SAVEPOINT theirs")
    results = await ox.bind(caller.bindable).enqueue_unique_many(send, [(1,), (2,)])
    await caller.run("RELEASE SAVEPOINT theirs")
    await caller.commit()

    assert competitor.locks() == {key_of(1): results[0].id, key_of(2): results[1].id}


async def test_a_dangling_lock_is_taken_over_in_the_callers_transaction_and_back_after_its_rollback(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    gone = uuid4()
    competitor.insert_lock(key_of(1), gone)

    await caller.begin(level)
    assert (await ox.bind(caller.bindable).enqueue_unique(send, 1)).created
    await caller.rollback()
    assert competitor.locks() == {key_of(1): gone}

    await caller.begin(level)
    result = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.commit()
    assert competitor.locks() == {key_of(1): result.id}


async def test_a_lock_that_moved_on_outlives_a_late_success_of_the_task_that_had_it(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    lost = hold(competitor, 1, status="LOST")

    await caller.begin(level)
    result = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.commit()
    competitor.set_task(lost, status="SUCCESSFUL")
    await ox.prune(older_than=0)

    assert competitor.locks() == {key_of(1): result.id}
    assert (await send.enqueue(1)).id == result.id


@pytest.mark.usefixtures("few")
async def test_many_more_rows_than_a_statement_has_parameters_are_one_unit(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    held = hold(competitor, 1234)

    await caller.begin()
    await caller.order(1)
    results = await ox.bind(caller.bindable).enqueue_unique_many(send, [(n,) for n in range(6_000)])
    assert competitor.counts() == (1, 1)
    await caller.commit()

    assert [n for n, result in enumerate(results) if not result.created] == [1234]
    assert results[1234].id == held
    assert competitor.counts() == (6_000, 6_000)
    assert {key_of(n) for n in range(6_000)} == set(competitor.locks())


async def test_the_path_of_a_reference_and_of_a_declared_task_lead_to_one_key(
    ox: Oxpull, caller: Caller, competitor: Competitor
):
    async def sent(n: int) -> None: ...

    task = ox.task(sent)
    theirs = ox.reference(task.path)

    await caller.begin()
    first = await ox.bind(caller.bindable).enqueue_unique(task, 1)
    again = await ox.bind(caller.bindable).enqueue_unique(theirs, 1)
    await caller.commit()

    assert task.path != SEND
    assert again.id == first.id
    assert competitor.counts() == (1, 1)


def test_on_the_event_loop_of_production_servers_it_is_the_same(way: Any, url: str, competitor: Competitor):
    async def commit_and_roll_back() -> None:
        caller = way.handle.make(url)
        await caller.open()
        async with Oxpull(url) as ox:
            send = ox.reference(SEND, unique=True)
            for n, end in ((1, caller.commit), (2, caller.rollback)):
                await caller.begin()
                await caller.order(n)
                first = await ox.bind(caller.bindable).enqueue_unique(send, n)
                again = await asyncio.gather(*[ox.bind(caller.bindable).enqueue_unique(send, n) for _ in range(3)])
                assert {result.id for result in again} == {first.id}
                await end()
        await caller.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(commit_and_roll_back())

    assert own_rows(competitor) == {1}
    assert set(competitor.locks()) == {key_of(1)}
