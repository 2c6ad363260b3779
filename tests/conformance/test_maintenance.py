"""Keeping the tables in order: reap, retry, discard, prune."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import anyio
import pytest

from oxpull_async._ids import new_id
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.ports import Pruned, Reaped, Store
from tests.conformance.rows import (
    LEASE,
    RECORD,
    WORKER,
    claimed,
    claimed_unique,
    failure,
    ids,
    inserted,
    new_unique,
    now,
    pad,
    request,
    row,
    success,
)
from tests.integration.competitor import Competitor

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ALL_STATUSES = [*TaskStatus, "PARKED"]
SETTLED = ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED"]


async def reap(store: Store, limit: int = 100) -> Reaped:
    return await store.reap(lease_seconds=LEASE, limit=limit, now=now())


def expire(competitor: Competitor, task_id: UUID) -> None:
    competitor.set_task(task_id, locked_at=LONG_AGO, lease_expires_at=LONG_AGO + timedelta(seconds=LEASE))


# reap


async def test_an_expired_row_with_attempts_left_is_ready_again(store: Store, competitor: Competitor):
    (claim,) = await claimed(store)
    expire(competitor, claim.id)

    assert await reap(store) == Reaped([claim.id], [])

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.lease_epoch) == ("READY", 1, 2)
    assert (found.locked_by, found.locked_at, found.lease_expires_at, found.finished_at) == (None,) * 4
    assert json.loads(found.errors) == []
    assert list(await store.settle([success(claim)])) == []


async def test_an_expired_row_without_attempts_left_is_lost(store: Store, competitor: Competitor):
    (claim,) = await claimed(store, max_attempts=1)
    expire(competitor, claim.id)
    before = now()

    assert await reap(store) == Reaped([], [claim.id])

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.lease_epoch) == ("LOST", 1, 1)
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)
    assert found.finished_at is not None
    assert found.finished_at >= before
    (record,) = json.loads(found.errors)
    assert record.keys() == {"exception_class_path", "traceback"}
    assert WORKER in record["traceback"]


async def test_a_row_whose_lease_runs_is_left_alone(store: Store):
    await claimed(store)

    assert await reap(store) == Reaped([], [])


async def test_a_row_that_carries_no_expiry_is_judged_by_when_it_was_locked(store: Store, competitor: Competitor):
    old, fresh, nobodys = await claimed(store, count=3)
    competitor.set_task(old.id, lease_expires_at=None, locked_at=LONG_AGO)
    competitor.set_task(fresh.id, lease_expires_at=None)
    competitor.set_task(nobodys.id, lease_expires_at=None, locked_at=None)

    assert await reap(store) == Reaped([old.id], [])


async def test_a_lease_that_an_older_writer_renewed_still_runs(store: Store, competitor: Competitor):
    (claim,) = await claimed(store)
    competitor.set_task(claim.id, lease_expires_at=LONG_AGO)  # locked_at is later than that

    assert await reap(store) == Reaped([], [])


async def test_no_more_rows_are_reaped_than_asked_for(store: Store, competitor: Competitor):
    claims = await claimed(store, count=5)
    for claim in claims:
        expire(competitor, claim.id)

    sizes = [len((await reap(store, limit=2)).requeued) for _ in range(4)]

    assert sizes == [2, 2, 1, 0]


async def test_reapers_side_by_side_take_each_row_once(store: Store, competitor: Competitor):
    claims = await claimed(store, count=30)
    for claim in claims:
        expire(competitor, claim.id)
    requeued: list[UUID] = []

    async def reap_all() -> None:
        while found := (await reap(store, limit=3)).requeued:
            requeued.extend(found)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(reap_all)
    requeued.extend((await reap(store)).requeued)

    assert sorted(requeued) == sorted(ids(claims))


async def test_a_reaped_holder_keeps_its_key(store: Store, competitor: Competitor):
    claim = await claimed_unique(store, "a")
    expire(competitor, claim.id)

    await reap(store)

    (answer,) = await store.insert_unique_together([new_unique("a")], wait_seconds=1, passes=5)
    assert answer.task_id == claim.id  # type: ignore[union-attr]
    assert competitor.locks() == {pad("a"): claim.id}


# retry


@pytest.mark.parametrize("status", ["FAILED", "LOST"])
async def test_a_retried_row_has_one_further_attempt(store: Store, competitor: Competitor, status: str):
    (claim,) = await claimed(store, max_attempts=1)
    await store.settle([failure(claim)])
    competitor.set_task(claim.id, status=status, run_after=LONG_AGO)

    assert await store.retry([claim.id]) == [claim.id]

    found = await row(store, claim.id)
    assert (found.status, found.attempts, found.max_attempts, found.lease_epoch) == ("READY", 1, 2, 2)
    assert (found.run_after, found.finished_at, found.locked_by, found.lease_expires_at) == (None,) * 4
    assert json.loads(found.errors) == [RECORD]
    assert json.loads(found.worker_ids) == [WORKER]


@pytest.mark.parametrize("status", [status for status in ALL_STATUSES if status not in ("FAILED", "LOST")])
async def test_only_failed_and_lost_rows_are_retried(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status)
    before = await row(store, task_id)

    assert list(await store.retry([task_id])) == []

    assert await row(store, task_id) == before


async def test_a_row_that_can_count_no_further_attempt_is_not_retried(store: Store, competitor: Competitor):
    task_id = competitor.insert_task(status="FAILED", attempts=32767, max_attempts=32767)

    assert list(await store.retry([task_id])) == []
    assert competitor.statuses() == {task_id: "FAILED"}


async def test_many_rows_are_retried_at_once_and_unknown_ids_are_skipped(store: Store, competitor: Competitor):
    failed = [competitor.insert_task(status="FAILED", attempts=number) for number in range(20)]
    done = competitor.insert_task(status="SUCCESSFUL")

    changed = await store.retry([*reversed(failed), done, new_id()])

    assert set(changed) == set(failed)
    budgets = [(await row(store, task_id)).max_attempts for task_id in failed]
    assert budgets == [number + 1 for number in range(20)]


async def test_retrying_nothing_is_nothing(store: Store):
    assert list(await store.retry([])) == []


# discard


@pytest.mark.parametrize("status", ["READY", "WAITING", "FAILED", "LOST"])
async def test_a_discarded_row_is_finished(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status, lease_epoch=4, attempts=2)
    moment = datetime(2026, 11, 30, 1, 2, 3, 456789, UTC)

    assert await store.discard([task_id], now=moment) == [task_id]

    found = await row(store, task_id)
    assert (found.status, found.finished_at) == ("DISCARDED", moment)
    assert (found.lease_epoch, found.attempts) == (4, 2)


@pytest.mark.parametrize("status", ["RUNNING", "SUCCESSFUL", "DISCARDED", "PARKED"])
async def test_other_rows_are_not_discarded(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status)
    before = await row(store, task_id)

    assert list(await store.discard([task_id], now=now())) == []

    assert await row(store, task_id) == before


async def test_many_rows_are_discarded_at_once_and_unknown_ids_are_skipped(store: Store, competitor: Competitor):
    tasks = await inserted(store, count=20)

    changed = await store.discard([*reversed(ids(tasks)), new_id()], now=now())

    assert set(changed) == set(ids(tasks))
    assert set(competitor.statuses().values()) == {"DISCARDED"}


async def test_a_discarded_row_is_not_claimed(store: Store):
    (task,) = await inserted(store)
    await store.discard([task.id], now=now())

    assert list(await store.claim(request())) == []


async def test_discarding_nothing_is_nothing(store: Store):
    assert list(await store.discard([], now=now())) == []


# cancel


@pytest.mark.parametrize(("status", "epoch"), [("READY", 4), ("WAITING", 4), ("RUNNING", 5)])
async def test_a_cancelled_row_is_finished_and_out_of_its_worker_s_reach(
    store: Store, competitor: Competitor, status: str, epoch: int
):
    task_id = competitor.insert_task(status=status, lease_epoch=4, attempts=2, locked_by="w", locked_at=LONG_AGO)
    moment = datetime(2026, 11, 30, 1, 2, 3, 456789, UTC)

    assert await store.cancel([task_id], now=moment) == [task_id]

    found = await row(store, task_id)
    assert (found.status, found.finished_at) == ("DISCARDED", moment)
    assert (found.lease_epoch, found.attempts) == (epoch, 2)
    assert (found.locked_by, found.locked_at, found.lease_expires_at) == (None, None, None)


@pytest.mark.parametrize("status", ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "PARKED"])
async def test_other_rows_are_not_cancelled(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status)
    before = await row(store, task_id)

    assert list(await store.cancel([task_id], now=now())) == []

    assert await row(store, task_id) == before


async def test_what_was_cancelled_is_neither_renewed_nor_settled_nor_reaped(store: Store, competitor: Competitor):
    (claim,) = await claimed(store)

    await store.cancel([claim.id], now=now())

    assert list(await store.renew([claim], worker_id=WORKER, lease_seconds=LEASE)) == []
    assert list(await store.settle([success(claim)])) == []
    assert list(await store.release([claim], worker_id=WORKER)) == []
    assert await reap(store) == Reaped([], [])
    assert competitor.statuses() == {claim.id: "DISCARDED"}


async def test_many_rows_are_cancelled_at_once_and_unknown_ids_are_skipped(store: Store, competitor: Competitor):
    claims = await claimed(store, count=10)
    ready = await inserted(store, count=10)
    wanted = [*ids(ready), *ids(claims)]

    changed = await store.cancel([*reversed(wanted), new_id()], now=now())

    assert set(changed) == set(wanted)
    assert set(competitor.statuses().values()) == {"DISCARDED"}
    assert list(await store.cancel([], now=now())) == []


# expire_lease


async def test_a_lease_that_an_operator_ended_is_reaped(store: Store):
    claim, other = await claimed(store, count=2)

    assert await store.expire_lease([claim.id], expired_at=now() - timedelta(days=1)) == [claim.id]

    assert (await row(store, claim.id)).status == "RUNNING"
    assert await reap(store) == Reaped([claim.id], [])
    assert (await row(store, other.id)).status == "RUNNING"


async def test_a_worker_that_lives_after_all_keeps_its_lease(store: Store):
    (claim,) = await claimed(store)
    await store.expire_lease([claim.id], expired_at=now() - timedelta(days=1))

    assert await store.renew([claim], worker_id=WORKER, lease_seconds=LEASE) == [claim.id]

    assert await reap(store) == Reaped([], [])


@pytest.mark.parametrize("status", [status for status in ALL_STATUSES if status != "RUNNING"])
async def test_only_running_rows_have_a_lease_to_end(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_task(status=status, locked_at=LONG_AGO)

    assert list(await store.expire_lease([task_id], expired_at=now())) == []


# prune


async def prune(store: Store, *statuses: str, before: datetime | None = None, limit: int = 1000) -> Pruned:
    return await store.prune(
        statuses=[TaskStatus(status) for status in statuses], finished_before=before or now(), limit=limit
    )


async def test_settled_rows_of_the_given_statuses_are_deleted(store: Store, competitor: Competitor):
    rows = {status: competitor.insert_task(status=status, finished_at=LONG_AGO) for status in ALL_STATUSES}

    assert await prune(store, "SUCCESSFUL", "DISCARDED") == Pruned(2, 0)

    assert set(competitor.statuses()) == set(rows.values()) - {rows["SUCCESSFUL"], rows["DISCARDED"]}


async def test_only_rows_finished_before_the_instant_are_deleted(store: Store, competitor: Competitor):
    instant = datetime(2026, 1, 1, 0, 0, 0, 5, UTC)
    earlier = competitor.insert_task(status="SUCCESSFUL", finished_at=instant - timedelta(microseconds=1))
    exactly = competitor.insert_task(status="SUCCESSFUL", finished_at=instant)
    unknown = competitor.insert_task(status="SUCCESSFUL")

    assert await prune(store, "SUCCESSFUL", before=instant) == Pruned(1, 0)

    assert set(competitor.statuses()) == {exactly, unknown}
    assert earlier not in competitor.statuses()


async def test_no_more_rows_are_deleted_than_asked_for(store: Store, competitor: Competitor):
    for _ in range(5):
        competitor.insert_task(status="SUCCESSFUL", finished_at=LONG_AGO)

    assert [(await prune(store, "SUCCESSFUL", limit=2)).tasks for _ in range(4)] == [2, 2, 1, 0]


async def test_ticks_forget_the_rows_that_are_deleted(store: Store, competitor: Competitor):
    task_id = competitor.insert_task(status="SUCCESSFUL", finished_at=LONG_AGO)
    kept = competitor.insert_task(status="READY")
    for number, named in enumerate([task_id, kept]):
        competitor.run(
            "INSERT INTO django_ox_oxscheduletick (schedule_name, scheduled_for, created_at, task_id) "
            "VALUES (?, ?, ?, ?)",
            f"schedule {number}", now(), now(), named,
        )  # fmt: skip

    assert await prune(store, "SUCCESSFUL") == Pruned(1, 0)

    found = competitor.rows("SELECT task_id FROM django_ox_oxscheduletick ORDER BY schedule_name")
    assert found[0] == (None,)
    assert UUID(str(found[1][0])) == kept


@pytest.mark.parametrize("status", [*SETTLED, "WAITING", "PARKED"])
async def test_a_lock_of_a_task_that_is_not_pending_is_deleted(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_unique(pad("a"), status=status)

    assert await prune(store) == Pruned(0, 1)

    assert competitor.locks() == {}
    assert competitor.statuses() == {task_id: status}


async def test_a_lock_of_no_task_is_deleted(store: Store, competitor: Competitor):
    competitor.insert_lock(pad("a"), None)
    competitor.insert_lock(pad("b"), new_id())

    assert await prune(store) == Pruned(0, 2)

    assert competitor.locks() == {}


@pytest.mark.parametrize("status", ["READY", "RUNNING"])
async def test_a_lock_of_a_pending_task_is_kept(store: Store, competitor: Competitor, status: str):
    task_id = competitor.insert_unique(pad("a"), status=status)

    assert await prune(store, *SETTLED) == Pruned(0, 0)

    assert competitor.locks() == {pad("a"): task_id}


async def test_rows_and_their_locks_go_in_one_pass(store: Store, competitor: Competitor):
    competitor.insert_unique(pad("a"), status="FAILED", finished_at=LONG_AGO)

    assert await prune(store, "FAILED") == Pruned(1, 1)

    assert competitor.counts() == (0, 0)


async def test_no_more_locks_are_deleted_than_asked_for(store: Store, competitor: Competitor):
    for number in range(5):
        competitor.insert_lock(pad(str(number)), None)

    assert [(await prune(store, limit=2)).locks for _ in range(4)] == [2, 2, 1, 0]


def insert_tick(competitor: Competitor, schedule: str, scheduled_for: datetime, task_id: UUID | None = None) -> None:
    competitor.run(
        "INSERT INTO django_ox_oxscheduletick (schedule_name, scheduled_for, created_at, task_id) VALUES (?, ?, ?, ?)",
        schedule, scheduled_for, scheduled_for, task_id,
    )  # fmt: skip


def ticks(competitor: Competitor) -> list[str]:
    found = competitor.rows("SELECT schedule_name FROM django_ox_oxscheduletick ORDER BY schedule_name, scheduled_for")
    return [name for (name,) in found]


async def test_old_ticks_are_deleted_but_a_schedule_s_newest(store: Store, competitor: Competitor):
    task_id = competitor.insert_task(status="SUCCESSFUL", finished_at=LONG_AGO)
    for minute in range(3):
        insert_tick(competitor, "old", LONG_AGO + timedelta(minutes=minute), task_id if minute == 2 else None)
    insert_tick(competitor, "running", LONG_AGO)
    insert_tick(competitor, "running", now())

    assert await prune(store, "SUCCESSFUL", before=now() - timedelta(days=1)) == Pruned(1, 0, 3)

    assert ticks(competitor) == ["old", "running"]
    assert competitor.rows("SELECT task_id FROM django_ox_oxscheduletick WHERE schedule_name = 'old'") == [(None,)]


async def test_no_more_ticks_are_deleted_than_asked_for(store: Store, competitor: Competitor):
    for minute in range(6):
        insert_tick(competitor, "old", LONG_AGO + timedelta(minutes=minute))

    assert [(await prune(store, limit=2)).ticks for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.engines("postgres", "mysql")
async def test_rows_that_another_is_retrying_keep_their_key_and_are_not_waited_for(
    store: Store, competitor: Competitor
):
    if not store.capabilities.skip_locked:
        pytest.skip("this server knows no SKIP LOCKED")
    retried = competitor.insert_unique(pad("a"), status="FAILED", finished_at=LONG_AGO)
    competitor.insert_unique(pad("b"), status="FAILED", finished_at=LONG_AGO)
    competitor.begin()
    competitor.set_task(retried, status="READY")

    with anyio.fail_after(5):
        assert await prune(store, "FAILED") == Pruned(1, 1)

    competitor.commit()
    assert competitor.locks() == {pad("a"): retried}
    assert competitor.statuses() == {retried: "READY"}
