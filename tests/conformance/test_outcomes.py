"""What attempts ended with: settle."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from oxpull_async._ids import new_id
from oxpull_async.ports import Held, Inserted, Store
from tests.conformance.rows import (
    RECORD,
    WORKER,
    claimed,
    claimed_unique,
    failure,
    ids,
    new_unique,
    now,
    pad,
    request,
    retry,
    row,
    success,
)
from tests.integration.competitor import Competitor

FINISHED = datetime(2026, 11, 30, 1, 2, 3, 456789, UTC)


async def test_a_success_keeps_the_value_and_ends_the_lease(store: Store):
    (claim,) = await claimed(store)

    assert await store.settle([success(claim, {"é": [1, None]}, finished_at=FINISHED)]) == [claim.id]

    found = await row(store, claim.id)
    assert (found.status, found.finished_at, found.attempts, found.lease_epoch) == ("SUCCESSFUL", FINISHED, 1, 1)
    assert found.return_value is not None
    assert json.loads(found.return_value) == {"é": [1, None]}
    assert json.loads(found.errors) == []
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)
    assert found.started_at is not None


async def test_a_task_that_returned_nothing_has_no_value(store: Store):
    (claim,) = await claimed(store)
    await store.settle([success(claim)])

    assert (await row(store, claim.id)).return_value is None


@pytest.mark.parametrize(
    "value",
    ["", 0, False, [], {}, "null", "é😀\u2028", 2**63, 1.5, "x" * 70_000, [[[[]]]]],
    ids=lambda value: repr(value)[:12],
)
async def test_a_value_comes_back_as_it_went_in(store: Store, value: object):
    (claim,) = await claimed(store)
    await store.settle([success(claim, value)])

    found = (await row(store, claim.id)).return_value
    assert found is not None
    assert json.loads(found) == value


async def test_a_failure_keeps_its_record_and_ends_the_lease(store: Store):
    (claim,) = await claimed(store)

    assert await store.settle([failure(claim, finished_at=FINISHED)]) == [claim.id]

    found = await row(store, claim.id)
    assert (found.status, found.finished_at, found.return_value) == ("FAILED", FINISHED, None)
    assert json.loads(found.errors) == [RECORD]
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)


async def test_a_retry_is_ready_again_at_its_time(store: Store):
    (claim,) = await claimed(store)
    due = datetime(2999, 1, 1, 0, 0, 0, 1, UTC)

    assert await store.settle([retry(claim, due)]) == [claim.id]

    found = await row(store, claim.id)
    assert (found.status, found.run_after, found.finished_at) == ("READY", due, None)
    assert (found.attempts, found.lease_epoch) == (1, 1)
    assert json.loads(found.errors) == [RECORD]
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)
    assert list(await store.claim(request())) == []


async def test_a_settled_row_keeps_when_it_was_due(store: Store):
    due = datetime(2026, 1, 2, tzinfo=UTC)
    (claim,) = await claimed(store, run_after=due)
    await store.settle([success(claim)])

    assert (await row(store, claim.id)).run_after == due


async def test_an_outcome_of_an_older_grant_does_not_land(store: Store):
    (old,) = await claimed(store)
    await store.settle([retry(old, now() - timedelta(seconds=1))])
    (new,) = await store.claim(request())
    before = await row(store, new.id)

    assert list(await store.settle([success(old, "late")])) == []

    assert await row(store, new.id) == before
    assert await store.settle([success(new, "right")]) == [new.id]


@pytest.mark.parametrize("status", ["READY", "SUCCESSFUL", "FAILED", "DISCARDED", "WAITING", "PARKED"])
async def test_an_outcome_lands_on_a_running_or_lost_row_alone(store: Store, competitor: Competitor, status: str):
    (claim,) = await claimed(store)
    competitor.set_task(claim.id, status=status)
    before = await row(store, claim.id)

    assert list(await store.settle([success(claim, 1)])) == []

    assert await row(store, claim.id) == before


async def test_a_straggler_may_still_write_over_lost(store: Store, competitor: Competitor):
    (claim,) = await claimed(store)
    competitor.set_task(claim.id, status="LOST")

    assert await store.settle([success(claim, "late")]) == [claim.id]

    assert (await row(store, claim.id)).status == "SUCCESSFUL"


async def test_many_outcomes_of_many_kinds_are_written_at_once(store: Store):
    good, bad, again, gone = await claimed(store, count=4)
    await store.release([gone], worker_id=WORKER)

    landed = await store.settle(
        [success(gone), retry(again, now()), failure(bad), success(good, {"n": 1}), success(good, id=new_id())]
    )

    assert set(landed) == {good.id, bad.id, again.id}
    statuses = {task.id: task.status for task in await store.get_tasks([good.id, bad.id, again.id, gone.id])}
    assert statuses == {good.id: "SUCCESSFUL", bad.id: "FAILED", again.id: "READY", gone.id: "READY"}


async def test_hundreds_of_outcomes_each_keep_their_own_values(store: Store):
    claims = await claimed(store, count=500)

    landed = await store.settle([success(claim, {"n": number}) for number, claim in enumerate(claims)])

    assert set(landed) == set(ids(claims))
    values = {task.id: json.loads(task.return_value or "") for task in await store.get_tasks(ids(claims))}
    assert values == {claim.id: {"n": number} for number, claim in enumerate(claims)}


async def test_settling_nothing_is_nothing(store: Store):
    assert list(await store.settle([])) == []


# The keys of unique tasks


async def test_a_success_frees_its_key(store: Store, competitor: Competitor):
    claim = await claimed_unique(store, "a")
    other = await claimed_unique(store, "b")

    await store.settle([success(claim)])

    assert competitor.locks() == {pad("b"): other.id}


@pytest.mark.parametrize("how", ["failure", "retry"])
async def test_any_other_outcome_leaves_the_lock_in_place(store: Store, competitor: Competitor, how: str):
    claim = await claimed_unique(store, "a")

    await store.settle([failure(claim) if how == "failure" else retry(claim, now())])

    assert competitor.locks() == {pad("a"): claim.id}


async def test_an_outcome_that_does_not_land_leaves_the_lock_in_place(store: Store, competitor: Competitor):
    claim = await claimed_unique(store, "a")

    assert list(await store.settle([success(claim, lease_epoch=99)])) == []

    assert competitor.locks() == {pad("a"): claim.id}


async def test_a_late_success_leaves_the_key_to_whoever_has_it_now(store: Store, competitor: Competitor):
    old = await claimed_unique(store, "a")
    competitor.set_task(old.id, status="LOST")
    newer = new_unique("a")
    assert await store.insert_unique_together([newer], wait_seconds=1, passes=5) == [Inserted()]

    assert await store.settle([success(old)]) == [old.id]

    assert competitor.locks() == {newer.key: newer.task.id}
    assert await store.read_holder(newer.key) == Held(newer.task.id, await row(store, newer.task.id))


async def test_outcomes_in_opposite_orders_never_deadlock(store: Store):
    claims = await claimed(store, count=60)
    landed: list[object] = []

    async def settle(order: list[int]) -> None:
        landed.extend(await store.settle([success(claims[index], index) for index in order]))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(settle, list(range(60)))
            group.start_soon(settle, list(reversed(range(60))))

    assert sorted(map(str, landed)) == sorted(str(claim.id) for claim in claims)
