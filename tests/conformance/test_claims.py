"""Claims and leases: claim, renew, release."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from uuid import UUID

import anyio
import pytest

from oxpull_async.ports import Store
from tests.conformance.rows import (
    LEASE,
    PATH,
    WORKER,
    claimed,
    failure,
    ids,
    inserted,
    new_task,
    now,
    request,
    retry,
    row,
    success,
)
from tests.integration.competitor import Competitor, aside
from tests.scale import rounds

# claim


async def test_a_claimed_row_runs_under_a_lease_and_has_spent_an_attempt(store: Store):
    before = now()
    (task,) = await inserted(store, args='["é"]', kwargs='{"a": null}', priority=3, takes_context=True)

    assert ids(await store.claim(request())) == [task.id]

    found = await row(store, task.id)
    assert (found.status, found.attempts, found.lease_epoch, found.locked_by) == ("RUNNING", 1, 1, WORKER)
    assert json.loads(found.worker_ids) == [WORKER]
    assert found.started_at == found.last_attempted_at == found.locked_at
    assert found.started_at is not None
    assert found.lease_expires_at is not None
    assert found.lease_expires_at - found.started_at == timedelta(seconds=LEASE)
    assert abs(found.started_at - before) < timedelta(seconds=5)
    assert (found.finished_at, found.return_value, found.run_after) == (None, None, None)


async def test_a_claim_says_all_that_a_run_needs(store: Store):
    (task,) = await inserted(store, args='["é"]', kwargs='{"a": null}', priority=3, takes_context=True)

    (claim,) = await store.claim(request())

    found = await row(store, task.id)
    assert json.loads(claim.args) == ["é"]
    assert json.loads(claim.kwargs) == {"a": None}
    for name in (
        "id", "task_path", "queue_name", "priority", "takes_context", "backend_name", "attempts", "max_attempts",
        "lease_epoch", "enqueued_at", "lease_expires_at",
    ):  # fmt: skip
        assert getattr(claim, name) == getattr(found, name), name
    assert json.loads(claim.errors) == []
    assert json.loads(claim.worker_ids) == [WORKER]


async def test_rows_are_granted_by_priority_then_age(store: Store):
    start = now() - timedelta(hours=1)
    tasks = [
        new_task(priority=priority, enqueued_at=start + timedelta(microseconds=age))
        for priority, age in [(0, 2), (5, 3), (-5, 0), (0, 1), (5, 1)]
    ]
    await store.insert_tasks(tasks)

    first = await store.claim(request(limit=2))
    rest = await store.claim(request(limit=2))
    last = await store.claim(request(limit=2))

    in_order = [tasks[index].id for index in (4, 1, 3, 0, 2)]
    assert [claim.id for claim in (*first, *rest, *last)] == in_order


async def test_no_more_rows_are_granted_than_asked_for(store: Store):
    await inserted(store, count=5)

    assert len(await store.claim(request(limit=3))) == 3
    assert len(await store.claim(request(limit=3))) == 2
    assert list(await store.claim(request(limit=3))) == []


async def test_hundreds_of_rows_are_granted_at_once(store: Store):
    tasks = await inserted(store, count=500)

    claims = await store.claim(request(limit=400))

    assert [claim.id for claim in claims] == [task.id for task in tasks[:400]]


async def test_only_rows_that_are_due_are_granted(store: Store):
    moment = now()
    await inserted(store, run_after=moment + timedelta(seconds=30))
    due = await inserted(store, run_after=moment - timedelta(microseconds=1))
    exactly = await inserted(store, run_after=moment)

    claims = await store.claim(request(now=moment))

    assert set(ids(claims)) == {due[0].id, exactly[0].id}


async def test_only_rows_of_the_given_paths_are_granted(store: Store):
    await inserted(store, task_path="elsewhere.task")
    (mine,) = await inserted(store)
    (other,) = await inserted(store, task_path="proof.tasks.other")

    assert ids(await store.claim(request(task_paths=[PATH]))) == [mine.id]
    assert ids(await store.claim(request(task_paths=[PATH, "proof.tasks.other"]))) == [other.id]


@pytest.mark.parametrize("path", ["Proof.Tasks.Work", "proof.tasks.work ", "proof.tasks.wörk", "proof.tasks.work\t"])
async def test_a_path_that_a_lax_collation_would_take_for_ours_is_not_ours(store: Store, path: str):
    await inserted(store, task_path=path)
    (mine,) = await inserted(store)

    assert ids(await store.claim(request())) == [mine.id]


async def test_only_rows_of_the_given_queues_are_granted(store: Store):
    await inserted(store, queue_name="other")
    (mail,) = await inserted(store, queue_name="mail")
    (slow,) = await inserted(store, queue_name="slow")

    assert ids(await store.claim(request(queues=["mail", "slow"]))) == [mail.id, slow.id]
    assert list(await store.claim(request(queues=["Other", "OTHER"]))) == []
    assert len(await store.claim(request(queues=None))) == 1


async def test_no_paths_or_no_queues_are_no_rows(store: Store):
    await inserted(store)

    assert list(await store.claim(request(task_paths=[]))) == []
    assert list(await store.claim(request(queues=[]))) == []


@pytest.mark.parametrize("status", ["RUNNING", "SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "WAITING", "PARKED"])
async def test_only_ready_rows_are_granted(store: Store, competitor: Competitor, status: str):
    competitor.insert_task(status=status, task_path=PATH)

    assert list(await store.claim(request())) == []


async def test_a_second_attempt_has_a_further_epoch_and_keeps_when_it_began(store: Store):
    (first,) = await claimed(store)
    began = (await row(store, first.id)).started_at
    await store.settle([retry(first, now() - timedelta(seconds=1))])

    (second,) = await store.claim(request(worker_id="worker-2"))

    found = await row(store, first.id)
    assert (second.attempts, second.lease_epoch) == (2, 2)
    assert json.loads(second.worker_ids) == [WORKER, "worker-2"]
    assert len(json.loads(second.errors)) == 1
    assert found.started_at == began
    assert found.last_attempted_at is not None
    assert began is not None
    assert found.last_attempted_at >= began


@pytest.mark.engines("postgres", "mysql")
async def test_a_row_that_another_is_writing_is_passed_over(store: Store, competitor: Competitor):
    if not store.capabilities.skip_locked:
        pytest.skip("this server knows no SKIP LOCKED")
    first, second = await inserted(store, count=2)
    competitor.begin()
    competitor.set_task(first.id, priority=9)

    with anyio.fail_after(5):
        assert ids(await store.claim(request())) == [second.id]

    competitor.rollback()
    assert ids(await store.claim(request())) == [first.id]


async def test_claimers_side_by_side_share_the_rows_and_none_is_granted_twice(store: Store):
    tasks = await inserted(store, count=rounds(small=300, full=5_000))
    granted: list[UUID] = []

    async def claim(worker: int) -> None:
        while found := await store.claim(request(worker_id=f"worker-{worker}", limit=7)):
            granted.extend(ids(found))

    async with anyio.create_task_group() as group:
        for worker in range(8):
            group.start_soon(claim, worker)

    # A claimer may find nothing while others hold what is left, and leave; so the last rows are fetched here.
    granted.extend(ids(await store.claim(request(limit=10_000))))
    assert Counter(granted) == Counter(task.id for task in tasks)


# renew


async def test_a_renewed_lease_runs_from_now(store: Store):
    (claim,) = await claimed(store)

    assert await store.renew([claim], worker_id=WORKER, lease_seconds=900) == [claim.id]

    found = await row(store, claim.id)
    assert found.lease_expires_at is not None
    assert found.locked_at is not None
    assert found.lease_expires_at - found.locked_at == timedelta(seconds=900)
    assert found.locked_at >= claim.lease_expires_at - timedelta(seconds=LEASE)
    assert (found.status, found.attempts, found.lease_epoch) == ("RUNNING", 1, 1)


async def test_only_leases_still_held_are_renewed(store: Store):
    held, settled, moved, foreign = await claimed(store, count=4)
    await store.settle([success(settled)])
    await store.release([moved], worker_id=WORKER)
    await store.claim(request(limit=1))  # grants `moved` again, under a further epoch
    await store.settle([retry(foreign, now() - timedelta(seconds=9))])
    await store.claim(request(limit=1, worker_id="worker-2"))

    renewed = await store.renew([foreign, moved, settled, held], worker_id=WORKER, lease_seconds=LEASE)

    assert list(renewed) == [held.id]


async def test_renewing_nothing_is_nothing(store: Store):
    assert list(await store.renew([], worker_id=WORKER, lease_seconds=LEASE)) == []


@pytest.mark.engines("postgres", "mysql")
async def test_a_renewal_does_not_wait_for_a_row_that_another_is_writing(store: Store, competitor: Competitor):
    if not store.capabilities.skip_locked:
        pytest.skip("this server knows no SKIP LOCKED")
    busy, free = await claimed(store, count=2)
    competitor.begin()
    competitor.set_task(busy.id, priority=9)

    with anyio.fail_after(5):
        assert list(await store.renew([busy, free], worker_id=WORKER, lease_seconds=LEASE)) == [free.id]

    competitor.rollback()


async def test_many_leases_are_renewed_at_once(store: Store):
    claims = await claimed(store, count=400)

    renewed = await store.renew(claims, worker_id=WORKER, lease_seconds=LEASE)

    assert set(renewed) == set(ids(claims))


# release


async def test_a_row_given_back_is_as_if_it_had_never_been_claimed(store: Store):
    (task,) = await inserted(store)
    before = await row(store, task.id)
    claims = await store.claim(request())

    assert await store.release(claims, worker_id=WORKER) == [task.id]

    after = await row(store, task.id)
    assert (after.status, after.attempts, after.lease_epoch) == ("READY", 0, 2)
    assert json.loads(after.worker_ids) == []
    assert (after.started_at, after.locked_by, after.locked_at, after.lease_expires_at) == (None, None, None, None)
    assert (after.max_attempts, after.enqueued_at) == (before.max_attempts, before.enqueued_at)


async def test_a_later_attempt_given_back_keeps_what_the_earlier_ones_left(store: Store):
    (first,) = await claimed(store)
    began = (await row(store, first.id)).started_at
    await store.settle([retry(first, now() - timedelta(seconds=1))])
    claims = await store.claim(request(worker_id="worker-2"))

    await store.release(claims, worker_id="worker-2")

    found = await row(store, first.id)
    assert (found.status, found.attempts, found.started_at) == ("READY", 1, began)
    assert json.loads(found.worker_ids) == [WORKER]
    assert len(json.loads(found.errors)) == 1


async def test_only_leases_still_held_are_given_back(store: Store):
    held, settled, again = await claimed(store, count=3)
    await store.settle([failure(settled), retry(again, now() - timedelta(seconds=9))])
    (anew,) = await store.claim(request(limit=1))

    released = await store.release([again, settled, held], worker_id=WORKER)

    assert list(released) == [held.id]
    assert (await row(store, anew.id)).status == "RUNNING"
    assert list(await store.release([anew], worker_id="worker-2")) == []


async def test_giving_back_nothing_is_nothing(store: Store):
    assert list(await store.release([], worker_id=WORKER)) == []


async def test_a_row_given_back_can_be_claimed_at_once(store: Store):
    claims = await claimed(store, count=3)
    await store.release(claims, worker_id=WORKER)

    again = await store.claim(request())

    assert set(ids(again)) == set(ids(claims))
    assert {claim.lease_epoch for claim in again} == {3}


# The locks of several writers


@pytest.mark.engines("postgres", "mysql")
async def test_renewals_outcomes_and_reaping_of_the_same_rows_never_deadlock(store: Store, competitor: Competitor):
    claims = await claimed(store, count=40)

    async def renew(group: list[int]) -> None:
        for _ in range(rounds(small=15, full=300)):
            await store.renew([claims[index] for index in group], worker_id=WORKER, lease_seconds=LEASE)

    async def settle_nothing(group: list[int]) -> None:
        for _ in range(rounds(small=15, full=300)):
            await store.settle([retry(claims[index], now(), lease_epoch=7) for index in group])

    async def reap() -> None:
        for _ in range(rounds(small=15, full=300)):
            await store.reap(lease_seconds=LEASE, limit=100, now=now())

    async with anyio.create_task_group() as group:
        for order in (list(range(40)), list(reversed(range(40))), [*range(20, 40), *range(20)]):
            group.start_soon(renew, order)
            group.start_soon(settle_nothing, order)
        group.start_soon(reap)

    assert set(competitor.statuses().values()) == {"RUNNING"}
    assert await aside(competitor.open_transactions) == 0
