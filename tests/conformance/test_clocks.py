"""Whose clock counts: leases go by the database's, whatever that of a worker says."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from oxpull_async.ports import Store
from tests.conformance.rows import LEASE, WORKER, ids, inserted, now, request, row
from tests.integration.competitor import Competitor
from tests.scale import rounds

ASKEW = [timedelta(minutes=-10), timedelta(minutes=10), timedelta(days=400)]


@pytest.mark.parametrize("skew", ASKEW, ids=str)
async def test_a_lease_lasts_as_long_whatever_the_worker_s_clock_says(store: Store, skew: timedelta):
    (task,) = await inserted(store, enqueued_at=now() - timedelta(days=1))

    (claim,) = await store.claim(request(now=now() + skew))
    await store.renew([claim], worker_id=WORKER, lease_seconds=LEASE)

    found = await row(store, task.id)
    assert found.locked_at is not None
    assert found.lease_expires_at is not None
    assert abs(found.locked_at - now()) < timedelta(minutes=5)
    assert found.lease_expires_at - found.locked_at == timedelta(seconds=LEASE)


@pytest.mark.parametrize("skew", ASKEW, ids=str)
async def test_a_reaper_with_a_wrong_clock_takes_no_lease_that_runs_and_each_that_is_over(
    store: Store, competitor: Competitor, skew: timedelta
):
    living, dead = await inserted(store, count=2)
    await store.claim(request())
    competitor.set_task(dead.id, locked_at=now() - timedelta(hours=2), lease_expires_at=now() - timedelta(hours=1))

    reaped = await store.reap(lease_seconds=LEASE, limit=10, now=now() + skew)

    assert list(reaped.requeued) == [dead.id]
    assert (await row(store, living.id)).status == "RUNNING"


async def test_reapers_never_take_a_row_that_is_just_being_claimed(store: Store):
    tasks = await inserted(store, count=rounds(small=60, full=5_000))
    granted, reaped = list[object](), list[object]()
    is_over = anyio.Event()

    async def claim(worker: int) -> None:
        while claims := await store.claim(request(worker_id=f"worker-{worker}", limit=3)):
            granted.extend(ids(claims))

    async def reap() -> None:
        while not is_over.is_set():
            found = await store.reap(lease_seconds=LEASE, limit=100, now=now())
            reaped.extend([*found.requeued, *found.lost])

    async with anyio.create_task_group() as group:
        group.start_soon(reap)
        async with anyio.create_task_group() as claimers:
            for worker in range(4):
                claimers.start_soon(claim, worker)
        is_over.set()

    granted.extend(ids(await store.claim(request(limit=10_000))))
    assert reaped == []
    assert sorted(map(str, granted)) == sorted(str(task.id) for task in tasks)
