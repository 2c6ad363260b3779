"""Batches: create, add, seal, count, scan, complete, lead and prune, over the ports alone."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from uuid import UUID

import anyio
import psycopg
import pymysql
import pytest

from oxpull_async._ids import new_id
from oxpull_async.core.batches import Ending, Tally
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports import Held, Inserted, Store
from oxpull_async.ports_batches import (
    Added,
    BatchClosed,
    BatchCount,
    Completed,
    MemberRow,
    NotSealed,
    Scan,
    SealedBatch,
    SealedNow,
    StillPending,
)
from tests.conformance.batch_rows import (
    CALLBACK,
    add,
    batch,
    complete,
    completed,
    filled,
    new_batch,
    opened,
    sealed,
)
from tests.conformance.rows import ids, inserted, new_task, new_unique, now, row
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside

SETTLED = ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED"]
NOT_SETTLED = ["READY", "RUNNING", "WAITING", "PARKED"]
BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"


def members_of(competitor: Competitor, batch_id: UUID) -> set[UUID]:
    return {UUID(str(row[0])) for row in competitor.rows(f"SELECT task_id FROM {MEMBERS} WHERE batch_id = ?", batch_id)}


# create


async def test_a_new_batch_is_open_and_has_what_it_was_created_with(store: Store):
    new = new_batch(name="näme", on_success_path="a.b", on_success_args='["\\u00e9"]')
    await store.batches.create(new)

    found = await batch(store, new.id)
    assert (found.id, found.name, found.status) == (new.id, "näme", "OPEN")
    assert (found.on_complete_path, found.on_complete_args, found.on_complete_kwargs) == (CALLBACK, "[1]", '{"x": 2}')
    assert found.on_success_path == "a.b"
    assert found.created_at == new.created_at
    assert (found.total_count, found.failed_count, found.callback_task_id, found.sealed_at) == (None, None, None, None)


async def test_an_id_that_exists_is_a_unique_violation(store: Store):
    new = new_batch()
    await store.batches.create(new)

    with pytest.raises(UniqueViolation):
        await store.batches.create(new)


async def test_batches_of_one_status_are_counted_up_to_a_limit(store: Store):
    first = new_batch()
    for new in (first, new_batch(), new_batch()):
        await store.batches.create(new)

    assert await store.batches.count("OPEN", limit=10) == BatchCount(3, first.created_at)
    assert await store.batches.count("OPEN", limit=2) == BatchCount(2, first.created_at)
    assert await store.batches.count("SEALED", limit=10) == BatchCount(0, None)


async def test_an_unknown_batch_is_none(store: Store):
    assert await store.batches.get(new_id()) is None
    assert await store.batches.get_sealed(new_id()) is None


# add


@pytest.mark.parametrize("count", [1, 3])
async def test_tasks_become_members_in_the_transaction_that_writes_them(
    store: Store, competitor: Competitor, count: int
):
    batch_id, tasks = await filled(store, count=count)

    assert members_of(competitor, batch_id) == set(ids(tasks))
    assert {(await row(store, task.id)).status for task in tasks} == {"READY"}


@pytest.mark.parametrize("status", ["SEALED", "COMPLETE", None])
@pytest.mark.parametrize("unique", [False, True])
async def test_a_closed_batch_takes_no_member_and_its_task_is_not_written(
    store: Store, competitor: Competitor, status: str | None, unique: bool
):
    batch_id = new_id() if status is None else await opened(store)
    if status:
        competitor.run(f"UPDATE {BATCHES} SET status = ? WHERE id = ?", status, batch_id)

    answer = await add(store, batch_id, *([], [new_unique("a")]) if unique else ([new_task()], []))

    assert answer == BatchClosed(status)
    assert competitor.counts() == (0, 0)


async def test_an_id_of_a_task_that_exists_leaves_nothing_written(store: Store, competitor: Competitor):
    (old,) = await inserted(store)
    batch_id = await opened(store)

    with pytest.raises(UniqueViolation):
        await add(store, batch_id, [new_task(), old])

    assert competitor.counts() == (1, 0)
    assert members_of(competitor, batch_id) == set()


async def test_unique_tasks_become_members_and_pending_ones_join_instead(store: Store, competitor: Competitor):
    pending, stale, new = new_unique("b"), new_unique("c"), new_unique("a")
    await store.insert_unique([pending, stale], wait_seconds=1)
    competitor.set_task(stale.task.id, status="FAILED")
    batch_id = await opened(store)
    again, over = new_unique("b"), new_unique("c")

    answer = await add(store, batch_id, uniques=[again, over, new])

    assert isinstance(answer, Added)
    held, *others = answer.answers
    assert isinstance(held, Held)
    assert held.task_id == pending.task.id
    assert others == [Inserted(), Inserted()]
    assert answer.repeated == frozenset()
    assert members_of(competitor, batch_id) == {pending.task.id, over.task.id, new.task.id}


async def test_a_pending_task_that_is_a_member_already_is_told(store: Store, competitor: Competitor):
    batch_id = await opened(store)
    first = new_unique("a")
    await add(store, batch_id, uniques=[first])

    answer = await add(store, batch_id, uniques=[new_unique("a"), new_unique("b")])

    assert isinstance(answer, Added)
    assert answer.repeated == {first.task.id}
    assert len(members_of(competitor, batch_id)) == 2


# seal


async def test_a_seal_counts_the_members(store: Store):
    batch_id, _ = await filled(store, count=3)
    at = now()

    assert await store.batches.seal(batch_id, now=at) == SealedNow(3)

    found = await batch(store, batch_id)
    assert (found.status, found.total_count, found.sealed_at) == ("SEALED", 3, at)


@pytest.mark.parametrize("status", ["SEALED", "COMPLETE", None])
async def test_what_is_not_open_is_not_sealed(store: Store, competitor: Competitor, status: str | None):
    batch_id = new_id() if status is None else await opened(store)
    if status:
        competitor.run(f"UPDATE {BATCHES} SET status = ? WHERE id = ?", status, batch_id)

    assert await store.batches.seal(batch_id, now=now()) == BatchClosed(status)


@pytest.mark.engines("postgres", "mysql")
async def test_a_seal_waits_for_an_addition_that_is_under_way_and_counts_it(store: Store, competitor: Competitor):
    batch_id, _ = await filled(store, count=1)
    competitor.begin()
    competitor.run(f"UPDATE {BATCHES} SET status = 'OPEN' WHERE id = ?", batch_id)
    competitor.run(f"INSERT INTO {MEMBERS} (task_id, created_at, batch_id) VALUES (?, ?, ?)", new_id(), now(), batch_id)

    async with anyio.create_task_group() as group:
        answers = []

        async def seal() -> None:
            answers.append(await store.batches.seal(batch_id, now=now()))

        group.start_soon(seal)
        with competitor.another() as observer:
            await eventually(lambda: observer.waiting_sessions() == 1)
        await aside(competitor.commit)

    assert answers == [SealedNow(2)]


@pytest.mark.engines("postgres", "mysql")
async def test_a_seal_waits_for_additions_of_others_who_only_share_the_batchs_lock(
    store: Store, competitor: Competitor, dialect: str
):
    batch_id, _ = await filled(store, count=1)
    shared = "FOR SHARE" if dialect == "postgres" else "LOCK IN SHARE MODE"
    answers = []

    async def seal() -> None:
        answers.append(await store.batches.seal(batch_id, now=now()))

    with competitor.another() as second, competitor.another() as observer:
        for other in (competitor, second):  # neither waits for the other
            other.begin()
            assert other.rows(f"SELECT status FROM {BATCHES} WHERE id = ? {shared}", batch_id) == [("OPEN",)]
            other.run(
                f"INSERT INTO {MEMBERS} (task_id, created_at, batch_id) VALUES (?, ?, ?)", new_id(), now(), batch_id
            )
        async with anyio.create_task_group() as group:
            group.start_soon(seal)
            await eventually(lambda: observer.waiting_sessions() == 1)
            await aside(second.commit)
            assert answers == []
            await aside(competitor.commit)

    assert answers == [SealedNow(3)]


@pytest.mark.engines("postgres", "mysql")
async def test_an_addition_that_waits_for_a_seal_is_refused(store: Store, competitor: Competitor):
    batch_id, _ = await filled(store, count=1)
    competitor.begin()
    competitor.run(f"UPDATE {BATCHES} SET status = 'SEALED', sealed_at = ? WHERE id = ?", now(), batch_id)

    async with anyio.create_task_group() as group:
        answers = []

        async def one(unique: bool) -> None:
            new = new_unique("a")
            answers.append(await add(store, batch_id, *([], [new]) if unique else ([new.task], [])))

        group.start_soon(one, False)
        group.start_soon(one, True)
        with competitor.another() as observer:
            await eventually(lambda: observer.waiting_sessions() >= 1)
        await aside(competitor.commit)

    assert answers == [BatchClosed("SEALED")] * 2
    assert competitor.counts() == (1, 0)


async def test_members_that_a_seal_left_uncounted_are_counted_later(store: Store, competitor: Competitor):
    batch_id, _ = await sealed(store, count=2)
    competitor.run(f"UPDATE {BATCHES} SET total_count = NULL WHERE id = ?", batch_id)
    (found,) = await store.batches.sealed(after=None, limit=10)
    assert not found.is_counted

    await store.batches.count_members(batch_id)

    assert (await batch(store, batch_id)).total_count == 2
    (found,) = await store.batches.sealed(after=None, limit=10)
    assert found.is_counted


# tally and members


@pytest.mark.parametrize("width", [None, 3, 1_000_000])
async def test_a_tally_counts_every_status_and_the_rows_that_are_gone(
    store: Store, competitor: Competitor, width: int | None
):
    batch_id, tasks = await filled(store, count=6)
    for task, status in zip(tasks, ["SUCCESSFUL", "FAILED", "FAILED", "PARKED", "READY"], strict=False):
        if status != "READY":
            competitor.set_task(task.id, status=status)
    competitor.delete_task(tasks[5].id)

    tally = await store.batches.tally(batch_id, width=width)

    assert tally == Tally({"SUCCESSFUL": 1, "FAILED": 2, "PARKED": 1, "READY": 1, None: 1})
    assert (tally.members, tally.pending, tally.succeeded, tally.failed) == (6, 2, 1, 2)


async def test_an_empty_batch_has_an_empty_tally(store: Store):
    assert await store.batches.tally(await opened(store), width=None) == Tally({})


async def test_members_come_page_by_page_in_the_order_of_their_ids(store: Store, competitor: Competitor):
    batch_id, tasks = await filled(store, count=5)
    competitor.delete_task(tasks[1].id)

    found: list[MemberRow] = []
    after: UUID | None = None
    while page := await store.batches.members(batch_id, statuses=None, after=after, limit=2):
        assert len(page) <= 2
        found += page
        after = page[-1].task_id

    assert {member.task_id for member in found} == set(ids(tasks))
    assert len(found) == 5
    assert {member.task_id: member.task and member.task.id for member in found}[tasks[1].id] is None
    assert all(member.task and member.task.status == "READY" for member in found if member.task_id != tasks[1].id)


async def test_members_with_a_status_come_and_the_last_of_the_page(store: Store, competitor: Competitor):
    batch_id, _ = await filled(store, count=4)
    everyone = await store.batches.members(batch_id, statuses=None, after=None, limit=9)
    competitor.set_task(everyone[1].task_id, status="FAILED")

    page = await store.batches.members(batch_id, statuses=["FAILED", "LOST"], after=None, limit=9)

    assert [member.task_id for member in page] == [everyone[1].task_id, everyone[3].task_id]


# scan and pending


@pytest.mark.parametrize("status", NOT_SETTLED)
async def test_a_scan_finds_the_highest_pending_member(store: Store, competitor: Competitor, status: str):
    batch_id, _ = await filled(store, count=4)
    order = [member.task_id for member in await store.batches.members(batch_id, statuses=None, after=None, limit=9)]
    for task_id in (order[3], order[1]):
        competitor.set_task(task_id, status="SUCCESSFUL")
    competitor.delete_task(order[0])
    if status != "READY":
        competitor.set_task(order[2], status=status)

    assert await store.batches.scan(batch_id, below=None, limit=10) == Scan(order[2], order[0])
    assert await store.batches.scan(batch_id, below=None, limit=1) == Scan(None, order[3])
    assert await store.batches.scan(batch_id, below=order[2], limit=10) == Scan(None, order[0])
    assert await store.batches.scan(batch_id, below=order[0], limit=10) == Scan(None, None)
    assert await store.batches.pending(order) == [order[2]]
    assert await store.batches.highest_pending(batch_id) == order[2]
    assert await store.batches.highest_pending(new_id()) is None


async def test_a_scan_goes_down_as_many_members_as_it_may(store: Store):
    batch_id, tasks = await filled(store, count=205)
    await store.discard(ids(tasks[1:]), now=now())
    order = [member.task_id for member in await store.batches.members(batch_id, statuses=None, after=None, limit=999)]

    assert await store.batches.scan(batch_id, below=None, limit=150) == Scan(None, order[-150])
    assert await store.batches.scan(batch_id, below=None, limit=200) == Scan(None, order[-200])
    assert (await store.batches.scan(batch_id, below=order[-150], limit=150)).pending == tasks[0].id
    assert await store.batches.scan(batch_id, below=None, limit=1_000) == Scan(tasks[0].id, order[0])


@pytest.mark.parametrize("status", SETTLED)
async def test_settled_rows_and_missing_ones_are_not_pending(store: Store, competitor: Competitor, status: str):
    (task,) = await inserted(store)
    competitor.set_task(task.id, status=status)

    assert await store.batches.pending([task.id, new_id()]) == []
    assert await store.batches.pending([]) == []


# sealed


async def test_sealed_batches_come_page_by_page_the_oldest_first(store: Store):
    at = now()
    older, twin, newer = [new_batch(created_at=at + timedelta(seconds=second)) for second in (-5, -5, 5)]
    for new in (newer, older, twin):
        await store.batches.create(new)
        await store.batches.seal(new.id, now=at)
    await opened(store)
    await completed(store)

    found: list[SealedBatch] = []
    after: SealedBatch | None = None
    while page := await store.batches.sealed(after=after, limit=1):
        found += page
        after = page[-1]

    assert {found[0].id, found[1].id} == {older.id, twin.id}
    assert found[2].id == newer.id
    assert len(found) == 3
    assert (found[2].on_complete_path, found[2].on_success_path) == (CALLBACK, "")
    assert await store.batches.get_sealed(newer.id) == found[2]


# complete


async def test_a_batch_completes_with_its_callbacks(store: Store, competitor: Competitor):
    batch_id, tasks = await sealed(store, count=2)
    for task in tasks:
        competitor.set_task(task.id, status="SUCCESSFUL")
    on_complete, on_success = new_task(priority=5), new_task(queue_name="q2")

    assert await complete(store, batch_id, on_complete, on_success) == Completed(Ending(2, 0, 0))

    found = await batch(store, batch_id)
    assert (found.status, found.total_count, found.failed_count) == ("COMPLETE", 2, 0)
    assert (found.callback_task_id, found.success_task_id) == (on_complete.id, on_success.id)
    assert found.completed_at is not None
    assert (await row(store, on_complete.id)).priority == 5
    assert (await row(store, on_success.id)).queue_name == "q2"


@pytest.mark.parametrize(
    ("bad", "ending"),
    [("FAILED", Ending(2, 1, 0)), ("LOST", Ending(2, 0, 1)), ("DISCARDED", Ending(2, 0, 1)), (None, Ending(2, 0, 1))],
)
async def test_on_success_is_withheld_unless_every_member_is_known_to_have_succeeded(
    store: Store, competitor: Competitor, bad: str | None, ending: Ending
):
    batch_id, tasks = await sealed(store, count=2)
    competitor.set_task(tasks[0].id, status="SUCCESSFUL")
    if bad:
        competitor.set_task(tasks[1].id, status=bad)
    else:
        competitor.delete_task(tasks[1].id)
    on_complete, on_success = new_task(), new_task()

    assert await complete(store, batch_id, on_complete, on_success) == Completed(ending)

    found = await batch(store, batch_id)
    assert (found.failed_count, found.callback_task_id, found.success_task_id) == (ending.failed, on_complete.id, None)
    assert await store.get_task(on_success.id) is None


@pytest.mark.parametrize("status", NOT_SETTLED)
async def test_a_pending_member_undoes_the_completion(store: Store, competitor: Competitor, status: str):
    batch_id, tasks = await sealed(store, count=2)
    competitor.set_task(tasks[0].id, status="FAILED")
    if status != "READY":
        competitor.set_task(tasks[1].id, status=status)
    callback = new_task()

    assert await complete(store, batch_id, callback) == StillPending(tasks[1].id)

    found = await batch(store, batch_id)
    assert (found.status, found.completed_at, found.failed_count) == ("SEALED", None, None)
    assert await store.get_task(callback.id) is None


async def test_a_pending_member_of_a_wide_batch_undoes_its_completion(store: Store, competitor: Competitor):
    batch_id, tasks = await sealed(store, count=3)
    competitor.run(f"UPDATE {BATCHES} SET total_count = 1000000 WHERE id = ?", batch_id)
    competitor.set_task(tasks[2].id, status="SUCCESSFUL")

    assert await complete(store, batch_id, new_task()) == StillPending(tasks[1].id)

    await store.discard(ids(tasks), now=now())
    assert await complete(store, batch_id, new_task()) == Completed(Ending(1_000_000, 0, 999_999))


async def test_only_a_sealed_batch_completes_and_only_once(store: Store):
    batch_id = await opened(store)
    assert await complete(store, batch_id) == NotSealed()
    await store.batches.seal(batch_id, now=now())

    assert await complete(store, batch_id) == Completed(Ending(0, 0, 0))
    assert await complete(store, batch_id, new_task()) == NotSealed()
    assert await complete(store, new_id()) == NotSealed()


async def test_of_many_who_complete_at_once_one_does(store: Store, competitor: Competitor):
    batch_id, tasks = await sealed(store, count=1)
    competitor.set_task(tasks[0].id, status="SUCCESSFUL")
    answers = []

    async with anyio.create_task_group() as group:

        async def one() -> None:
            answers.append(await complete(store, batch_id, new_task(), new_task()))

        for _ in range(8):
            group.start_soon(one)

    assert sorted(map(str, answers)) == sorted(map(str, [Completed(Ending(1, 0, 0)), *[NotSealed()] * 7]))
    assert competitor.counts() == (3, 0)


async def test_a_batch_that_was_sealed_uncounted_is_counted_when_it_completes(store: Store, competitor: Competitor):
    batch_id, tasks = await sealed(store, count=2)
    competitor.run(f"UPDATE {BATCHES} SET total_count = NULL WHERE id = ?", batch_id)
    competitor.set_task(tasks[0].id, status="SUCCESSFUL")
    competitor.delete_task(tasks[1].id)

    assert await complete(store, batch_id) == Completed(Ending(2, 0, 1))
    assert (await batch(store, batch_id)).total_count == 2


# lead


async def test_a_role_is_one_holders_until_its_lease_is_over(store: Store, competitor: Competitor):
    first = await store.batches.lead("proof", holder="a", lease_seconds=60)
    assert first.is_ours
    assert 50 < first.seconds < 60.01

    other = await store.batches.lead("proof", holder="b", lease_seconds=60)
    assert not other.is_ours
    assert 50 < other.seconds < 60.01
    assert (await store.batches.lead("proof", holder="a", lease_seconds=60)).is_ours
    assert (await store.batches.lead("another", holder="b", lease_seconds=60)).is_ours

    competitor.run("UPDATE oxpull_async_leader SET expires_at = ? WHERE role = 'proof'", now() - timedelta(seconds=1))
    assert (await store.batches.lead("proof", holder="b", lease_seconds=60)).is_ours
    assert not (await store.batches.lead("proof", holder="a", lease_seconds=60)).is_ours


async def test_a_lease_from_a_clock_that_was_set_back_since_counts_as_over(store: Store, competitor: Competitor):
    await store.batches.lead("proof", holder="a", lease_seconds=5)
    competitor.run("UPDATE oxpull_async_leader SET expires_at = ?", now() + timedelta(hours=1))

    assert (await store.batches.lead("proof", holder="b", lease_seconds=5)).is_ours


async def test_who_stands_down_makes_room_at_once(store: Store):
    await store.batches.lead("proof", holder="a", lease_seconds=60)

    await store.batches.stand_down("proof", holder="b")
    assert not (await store.batches.lead("proof", holder="b", lease_seconds=60)).is_ours
    await store.batches.stand_down("proof", holder="a")
    assert (await store.batches.lead("proof", holder="b", lease_seconds=60)).is_ours


async def test_it_is_known_until_when_somebody_led(store: Store):
    assert await store.batches.last_led("proof:") is None
    await store.batches.lead("proof:x", holder="a", lease_seconds=60)
    await store.batches.lead("other", holder="a", lease_seconds=600)

    until = await store.batches.last_led("proof:")

    assert until is not None
    assert timedelta(seconds=30) < until - now() < timedelta(seconds=90)


async def test_of_many_who_want_a_role_at_once_one_gets_it(store: Store):
    answers = []

    async with anyio.create_task_group() as group:

        async def one(number: int) -> None:
            answers.append(await store.batches.lead("proof", holder=f"h{number}", lease_seconds=60))

        for number in range(8):
            group.start_soon(one, number)

    assert [answer.is_ours for answer in answers].count(True) == 1


# prune


async def test_completed_batches_are_pruned_with_their_members_chunk_by_chunk(store: Store, competitor: Competitor):
    batch_id = await completed(store, count=5)
    other = await completed(store, count=1)
    await sealed(store, count=1)

    assert set(await store.batches.find_prunable(completed_before=now(), limit=10)) == {batch_id, other}
    assert len(await store.batches.find_prunable(completed_before=now(), limit=1)) == 1
    assert await store.batches.find_prunable(completed_before=now() - timedelta(days=1), limit=10) == []
    assert [await store.batches.prune_members(batch_id, limit=2) for _ in range(3)] == [2, 2, 1]

    assert await store.batches.get(batch_id) is None
    assert members_of(competitor, batch_id) == set()
    assert await store.batches.prune_members(batch_id, limit=2) == 0
    assert len(members_of(competitor, other)) == 1
    assert competitor.counts()[0] == 7


async def test_a_batch_with_members_cannot_be_deleted_by_hand(store: Store, competitor: Competitor):
    batch_id = await completed(store, count=1)
    if competitor.scheme == "sqlite":
        competitor.run("PRAGMA foreign_keys = ON")

    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError, pymysql.IntegrityError)):
        competitor.run(f"DELETE FROM {BATCHES} WHERE id = ?", batch_id)

    assert await store.batches.get(batch_id) is not None


async def test_a_batch_that_is_not_complete_is_not_pruned(store: Store, competitor: Competitor):
    batch_id, _ = await sealed(store, count=1)

    assert await store.batches.prune_members(batch_id, limit=2) == 0

    assert len(members_of(competitor, batch_id)) == 1
