"""Rows that go back before their attempt is a failure: snoozed, taken away, found again; and rows that others lock."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from oxpull_async._ids import new_id
from oxpull_async.core.settlements import Settlement
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.ports import Claim, Outcome, Store
from tests.conformance.rows import (
    PATH,
    RECORD,
    WORKER,
    claimed,
    claimed_unique,
    failure,
    ids,
    inserted,
    new_task,
    pad,
    request,
    row,
    success,
)
from tests.integration.competitor import Competitor

LATER = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


def snooze(claim: Claim, run_after: datetime = LATER) -> Outcome:
    """The claim's run wants to run later."""
    return success(claim, settlement=Settlement.snooze(1), run_after=run_after)


async def test_a_snooze_leaves_the_row_as_if_it_had_not_been_claimed(store: Store):
    (claim,) = await claimed(store)
    before = claim.attempts

    assert await store.settle([snooze(claim)]) == [claim.id]

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.lease_epoch, found.run_after) == ("READY", before - 1, 2, LATER)
    assert (found.worker_ids, found.started_at, found.finished_at) == ("[]", None, None)
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)
    assert found.last_attempted_at is not None


async def test_a_snooze_of_a_later_attempt_keeps_the_history_of_the_earlier_ones(store: Store):
    (claim,) = await claimed(store)
    await store.settle([success(claim, settlement=Settlement.retry(RECORD, 0), errors=json.dumps([RECORD]))])
    (again,) = await store.claim(request(worker_id="worker-2"))

    await store.settle([snooze(again)])

    found = await row(store, claim.id)
    assert (found.attempts, json.loads(found.worker_ids), json.loads(found.errors)) == (1, [WORKER], [RECORD])
    assert found.started_at == claim.started_at


@pytest.mark.parametrize("how", ["another epoch", "LOST"])
async def test_a_snooze_lands_only_on_a_row_that_runs_under_its_epoch(store: Store, competitor: Competitor, how: str):
    (claim,) = await claimed(store)
    competitor.set_task(claim.id, **({"status": "LOST"} if how == "LOST" else {"lease_epoch": 7}))

    assert await store.settle([snooze(claim)]) == []


async def test_snoozes_and_other_outcomes_may_come_together(store: Store):
    first, second, third = await claimed(store, count=3)

    landed = await store.settle([success(first), snooze(second), failure(third)])

    assert sorted(landed) == sorted([first.id, second.id, third.id])
    statuses = [(await row(store, claim.id)).status for claim in (first, second, third)]
    assert statuses == ["SUCCESSFUL", "READY", "FAILED"]


async def test_a_snoozed_row_keeps_its_key(store: Store, competitor: Competitor):
    claim = await claimed_unique(store, "a")

    await store.settle([snooze(claim)])

    assert competitor.locks() == {pad("a"): claim.id}


@pytest.mark.parametrize("status", [TaskStatus.READY, TaskStatus.FAILED])
async def test_a_row_that_is_taken_away_is_beyond_the_reach_of_its_attempt(store: Store, status: TaskStatus):
    (claim,) = await claimed(store)
    fails = status is TaskStatus.FAILED
    taken = success(
        claim,
        settlement=Settlement.failure(RECORD) if fails else Settlement.retry(RECORD, 1),
        errors=json.dumps([RECORD]),
        run_after=None if fails else LATER,
        takes_row_away=True,
    )

    assert await store.settle([taken]) == [claim.id]
    assert await store.settle([success(claim)]) == []

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.lease_epoch) == (status, 1, 2)
    assert json.loads(found.errors) == [RECORD]
    assert found.locked_by is None


async def test_a_discarded_attempt_settles_its_row(store: Store):
    (claim,) = await claimed(store)
    errors = json.dumps([RECORD])

    await store.settle([success(claim, settlement=Settlement.discard(RECORD), errors=errors)])

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.lease_epoch, found.locked_by) == ("DISCARDED", 1, 1, None)
    assert (json.loads(found.errors), found.finished_at is None) == ([RECORD], False)


async def test_what_a_worker_holds_is_found_by_its_name(store: Store, competitor: Competitor):
    mine = await claimed(store, count=3)
    await claimed(store, worker="somebody else")
    await store.settle([success(mine[0])])
    competitor.set_task(mine[1].id, lease_expires_at=datetime(2001, 1, 1, tzinfo=UTC))

    (found,) = await store.held(WORKER)

    assert found == mine[2]


async def test_a_claim_says_when_it_was_due_and_first_and_last_begun(store: Store):
    due = datetime(2020, 1, 1, tzinfo=UTC)
    (claim,) = await claimed(store, run_after=due)
    found = await row(store, claim.id)

    assert claim.run_after == due
    assert claim.started_at == claim.last_attempted_at == found.started_at == found.last_attempted_at


async def test_the_next_due_row_is_that_of_the_earliest_instant(store: Store):
    now = datetime.now(UTC).replace(microsecond=123456)
    await inserted(store, run_after=now + timedelta(hours=2))
    await inserted(store, run_after=now + timedelta(hours=1))
    await inserted(store, run_after=now, queue_name="others")
    await inserted(store, run_after=now, task_path="proof.tasks.foreign")

    assert await store.next_due(task_paths=[PATH], queues=["default"], after=now) == now + timedelta(hours=1)
    assert await store.next_due(task_paths=["proof.tasks.none"], queues=None, after=now) is None


async def test_the_best_of_many_paths_are_claimed(store: Store):
    tasks = [
        new_task(task_path=f"proof.tasks.path{number % 7}", priority=number % 3, id=new_id()) for number in range(70)
    ]
    await store.insert_tasks(tasks)
    paths = [f"proof.tasks.path{number}" for number in range(9)]

    claims = await store.claim(request(task_paths=paths, limit=25))

    best = sorted(tasks, key=lambda task: (-task.priority, task.enqueued_at))[:25]
    assert [(claim.priority, claim.enqueued_at) for claim in claims] == [(t.priority, t.enqueued_at) for t in best]


@pytest.mark.engines("postgres", "mysql")
async def test_claimers_of_many_paths_do_not_keep_each_other_from_any_row(store: Store, competitor: Competitor):
    paths = [f"proof.tasks.path{number}" for number in range(5)]
    tasks = [new_task(task_path=path) for path in paths for _ in range(4)]
    await store.insert_tasks(tasks)
    competitor.begin()
    competitor.set_task(tasks[0].id, max_attempts=9)

    claims: list[Claim] = []
    while some := await store.claim(request(task_paths=paths, limit=5)):
        claims += some
    competitor.rollback()

    assert sorted(ids(claims)) == sorted(ids(tasks[1:]))


@pytest.mark.engines("postgres", "mysql")
async def test_an_outcome_does_not_wait_for_a_row_or_a_lock_that_somebody_holds(store: Store, competitor: Competitor):
    row_held, free = await claimed(store, count=2)
    lock_held = await claimed_unique(store, "a")
    competitor.begin()
    competitor.set_task(row_held.id, max_attempts=9)
    competitor.run(
        f"SELECT task_id FROM oxpull_oxpulluniquelock WHERE {competitor.key_column} = ? FOR UPDATE", pad("a")
    )

    landed = await store.settle([success(row_held), success(free), success(lock_held)])
    competitor.rollback()

    assert sorted(landed) == sorted([free.id, lock_held.id])
    assert competitor.locks() == {pad("a"): lock_held.id}
    assert await store.settle([success(row_held)]) == [row_held.id]
    assert ids([await row(store, row_held.id)]) == [row_held.id]
