"""Queues of which no more than so many rows run at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from oxpull_async._contention import retrying
from oxpull_async.core.settlements import Settlement
from oxpull_async.drivers import SqlStore
from oxpull_async.ports import Claim, Outcome
from tests.conformance.exclusive_rows import claim as claim_exclusive
from tests.conformance.rows import LEASE, claimed, ids, inserted, now, request
from tests.conformance.test_maintenance import expire
from tests.integration.competitor import Competitor


async def mail(store: SqlStore, limit: int = 10) -> list[Claim]:
    return list(await store.claim(request(queues=["mail"], limited_queue="mail", limit=limit)))


async def settle(store: SqlStore, claim: Claim) -> None:
    await store.settle([
        Outcome(
            id=claim.id, lease_epoch=claim.lease_epoch, settlement=Settlement.success("null"), errors="[]",
            run_after=None, finished_at=now(),
        )
    ])  # fmt: skip


async def test_only_a_claim_that_counts_takes_rows_of_a_limited_queue(store: SqlStore):
    (first, _) = await inserted(store, count=2, queue_name="mail")
    (other,) = await inserted(store, queue_name="Mail")
    assert await store.limit_queue("mail", 1)

    assert ids(await store.claim(request())) == [other.id]
    assert await store.claim(request(queues=["mail"])) == []
    assert ids(await mail(store)) == [first.id]
    assert await mail(store) == []


async def test_a_row_that_has_ended_makes_way_for_the_next(store: SqlStore):
    tasks = await inserted(store, count=4, queue_name="mail")
    await store.limit_queue("mail", 2)

    running = await mail(store)
    assert ids(running) == [task.id for task in tasks[:2]]
    assert ([each.attempts for each in running], [each.lease_epoch for each in running]) == ([1, 1], [1, 1])
    await settle(store, running[1])

    assert ids(await mail(store)) == [tasks[2].id]


async def test_claims_at_once_take_no_more_than_the_places(store: SqlStore):
    await inserted(store, count=20, queue_name="mail")
    await store.limit_queue("mail", 5)

    claims = await asyncio.gather(*(retrying(lambda: mail(store, limit=2)) for _ in range(6)))

    assert sum(map(len, claims)) <= 5
    while more := await retrying(lambda: mail(store, limit=2)):  # who was passed over by others' locks
        claims.append(more)
    assert sum(map(len, claims)) == 5
    assert len({each for found in claims for each in ids(found)}) == 5


async def test_what_runs_already_counts_though_it_is_more_than_the_limit(store: SqlStore):
    running = [*await claimed(store, queue_name="mail"), *await claimed(store, queue_name="mail")]
    (waiting,) = await inserted(store, queue_name="mail")
    await store.limit_queue("mail", 1)

    for claim in running:
        assert await mail(store) == []
        await settle(store, claim)
    assert ids(await mail(store)) == [waiting.id]


async def test_a_dead_worker_s_row_counts_until_it_is_reaped(store: SqlStore, competitor: Competitor):
    await inserted(store, count=2, queue_name="mail")
    await store.limit_queue("mail", 1)
    (dead,) = await mail(store)

    expire(competitor, dead.id)
    assert await mail(store) == []

    await store.reap(lease_seconds=LEASE, limit=10, now=now())
    assert len(await mail(store)) == 1
    assert await mail(store) == []


async def test_a_limit_is_told_changed_and_lifted(store: SqlStore):
    before = now()
    assert [await store.limit_queue("mäil", places) for places in (3, 3, 2)] == [True, False, True]
    await store.limit_queue("b", 9)
    await claimed(store)

    second, first = await store.limited_queues()

    assert (first.queue_name, first.places, first.running) == ("mäil", 2, 0)
    assert (second.queue_name, second.places) == ("b", 9)
    assert abs(first.limited_at - before) < timedelta(seconds=30)
    assert [await store.limit_queue("mäil", None), await store.limit_queue("mäil", None)] == [True, False]
    assert [found.queue_name for found in await store.limited_queues()] == ["b"]


async def test_without_the_limit_its_rows_are_claimed_like_others(store: SqlStore):
    tasks = await inserted(store, count=3, queue_name="mail")
    await store.limit_queue("mail", 1)
    await mail(store)
    (found,) = await store.limited_queues()
    assert (found.places, found.running) == (1, 1)

    await store.limit_queue("mail", None)

    assert await mail(store) == []  # who believes that there is one still
    assert ids(await store.claim(request())) == [task.id for task in tasks[1:]]


async def test_a_limited_queue_that_is_paused_rests(store: SqlStore):
    (task,) = await inserted(store, queue_name="mail")
    await store.limit_queue("mail", 1)
    await store.pause_queue("mail")
    assert await mail(store) == []

    await store.resume_queue("mail")
    assert ids(await mail(store)) == [task.id]


@pytest.mark.parametrize("places", [1, 2])
async def test_an_exclusive_row_needs_its_key_and_a_place_in_its_queue(store: SqlStore, places: int):
    (first, second) = await inserted(store, count=2, args='["a"]', queue_name="mail")
    (other,) = await inserted(store, args='["b"]', queue_name="mail")
    (elsewhere,) = await inserted(store, args='["c"]')
    await store.limit_queue("mail", places)

    plain = await claim_exclusive(store)
    found = await claim_exclusive(store, queues=["mail"], limited_queue="mail")

    assert [claim.id for claim, _ in plain.granted] == [elsewhere.id]
    assert [claim.id for claim, _ in found.granted] == [first.id, other.id][:places]
    full = await claim_exclusive(store, queues=["mail"], limited_queue="mail")
    assert not (full.granted or full.refused or full.skipped)
    assert (await store.get_tasks([second.id]))[0].status == "READY"
