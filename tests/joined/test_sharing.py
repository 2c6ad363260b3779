"""Calls at once on one connection or session wait for one another, whatever handle each has of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from oxpull_async import EnqueueResult, Oxpull
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import hold, key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import Caller, Handle


async def test_calls_at_once_on_one_connection_are_serialised(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    hold(competitor, 100)

    await caller.begin(level)
    await caller.order(1)
    results = await asyncio.gather(
        *[ox.bind(caller.bindable).enqueue_unique(send, n % 3) for n in range(9)],
        ox.bind(caller.bindable).enqueue_unique_many(send, [(100,), (0,), (7,)]),
        ox.bind(caller.bindable).enqueue(ox.reference("proof.work"), 1),
    )
    await caller.order(2)
    await caller.commit()

    singles = [result for result in results[:9] if isinstance(result, EnqueueResult)]
    assert sum(result.created for result in singles) == 3
    assert len({result.id for result in singles}) == 3
    assert set(competitor.locks()) == {key_of(n) for n in (0, 1, 2, 7, 100)}
    assert own_rows(competitor) == {1, 2}


@pytest.mark.usefixtures("few")
async def test_calls_at_once_through_one_bound_are_serialised(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    bound = ox.bind(caller.bindable)
    results = await asyncio.gather(*[bound.enqueue_unique(send, n) for n in range(20)])
    await caller.rollback()

    assert all(result.created for result in results)
    assert competitor.counts() == (0, 0)


async def test_a_session_and_its_connection_are_one(
    ox: Oxpull, send: AnyTask, caller: Caller, handle: Handle, competitor: Competitor
):
    if not handle.name.endswith("-session"):
        pytest.skip("for sessions")
    await caller.begin()
    session = caller.bindable
    connection = await session.connection()
    results = await asyncio.gather(
        *[ox.bind(one).enqueue_unique_many(send, [(n,), (n + 1,)]) for n in range(8) for one in (session, connection)]
    )
    await caller.commit()

    assert sum(result.created for found in results for result in found) == 9
    assert competitor.counts() == (9, 9)


@pytest.mark.usefixtures("few")
async def test_two_oxpulls_at_once_on_one_connection_are_serialised(
    ox: Oxpull, url: str, send: AnyTask, caller: Caller, competitor: Competitor
):
    async with Oxpull(url, backend_name="other") as other:
        theirs = other.reference("proof.send", unique=True)
        await caller.begin()
        results = await asyncio.gather(
            *[ox.bind(caller.bindable).enqueue_unique_many(send, [(n,), (n + 1,)]) for n in range(8)],
            *[other.bind(caller.bindable).enqueue_unique_many(theirs, [(n,), (n + 1,)]) for n in range(8)],
        )
        await caller.commit()

    assert sum(result.created for found in results for result in found) == 18
    assert competitor.counts() == (18, 18)


@pytest.mark.parametrize("way", ["asyncpg", "postgresql+psycopg-session"], indirect=True)
async def test_of_calls_at_once_a_cancelled_one_costs_the_others_nothing_where_the_driver_allows_it(
    ox: Oxpull, send: AnyTask, caller: Caller, handle: Handle, competitor: Competitor
):
    await caller.begin()
    await caller.order(1)
    bound = ox.bind(caller.bindable)
    calls = [asyncio.ensure_future(bound.enqueue_unique(send, n)) for n in range(6)]
    await asyncio.sleep(0)
    for waiting in calls[2:4]:  # none of them has begun
        waiting.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    await caller.commit()

    assert [isinstance(result, asyncio.CancelledError) for result in results] == [False] * 2 + [True] * 2 + [False] * 2
    assert set(competitor.locks()) == {key_of(n) for n in (0, 1, 4, 5)}
    assert own_rows(competitor) == {1}


@pytest.mark.usefixtures("few")
async def test_a_transaction_of_ours_needs_one_connection_alone(url: str, competitor: Competitor):
    async with Oxpull(url, pool_size=1, pool_timeout=2) as ox:
        send = ox.reference("proof.send", unique=True)
        async with ox.transaction() as transaction:
            first = await transaction.enqueue_unique(send, 1)
            again = await transaction.enqueue_unique(send, 1)
            assert competitor.counts() == (0, 0)
        assert (first.created, again.created, again.id) == (True, False, first.id)

        with contextlib.suppress(ZeroDivisionError):
            async with ox.transaction() as transaction:
                await transaction.enqueue_unique(send, 2)
                raise ZeroDivisionError

    assert competitor.locks() == {key_of(1): first.id}
    no_lock_without_task_nor_task_without_lock(competitor)
