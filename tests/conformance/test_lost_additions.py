"""An addition whose reply was lost, and is tried again: what had been committed is answered, and not done again."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import anyio
import pytest

from oxpull_async.ports import Held, Inserted, Store
from oxpull_async.ports_batches import Added, Addition, BatchClosed
from tests.conformance.batch_rows import add, opened
from tests.conformance.rows import new_unique, now
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside

BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"


def members_of(competitor: Competitor, batch_id: UUID) -> set[UUID]:
    return {UUID(str(row[0])) for row in competitor.rows(f"SELECT task_id FROM {MEMBERS} WHERE batch_id = ?", batch_id)}


@dataclass
class Lost:
    """An addition that was committed, and what it would have answered."""

    addition: Addition
    answer: Added


async def lost(store: Store, batch_id: UUID) -> tuple[Lost, set[UUID]]:
    """Two new tasks, one that joined, one that was a member before; and all members."""
    pending, member = new_unique("pending"), new_unique("member")
    await store.insert_unique([pending], wait_seconds=1)
    await add(store, batch_id, uniques=[member])
    uniques = [new_unique("a"), new_unique("b"), new_unique("pending"), new_unique("member")]
    addition = Addition(batch_id, [], uniques, now())
    answer = await store.batches.add(addition, wait_seconds=5, passes=5)
    assert isinstance(answer, Added)
    new = [unique.task.id for unique in uniques[:2]]
    return Lost(addition, answer), {*new, pending.task.id, member.task.id}


async def again(store: Store, lost: Lost) -> Added | BatchClosed:
    return await store.batches.add(lost.addition, wait_seconds=5, passes=5, unheard=[lost.answer])


@pytest.mark.parametrize("status", ["READY", "SUCCESSFUL", "FAILED", None])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "sealed"])
async def test_what_was_committed_unheard_is_not_done_again(
    store: Store, competitor: Competitor, status: str | None, closed: bool
):
    batch_id = await opened(store)
    before, members = await lost(store, batch_id)
    for task_id in members:
        if status is None:
            competitor.delete_task(task_id)
        elif status != "READY":
            competitor.set_task(task_id, status=status)
    if closed:
        await store.batches.seal(batch_id, now=now())
    counts = competitor.counts()

    assert await again(store, before) == before.answer

    assert members_of(competitor, batch_id) == members
    assert competitor.counts() == counts


async def test_it_is_answered_though_somebody_holds_a_key_of_it(store: Store, competitor: Competitor):
    batch_id = await opened(store)
    before, _ = await lost(store, batch_id)
    key = before.addition.uniques[0].key
    competitor.run(f"DELETE FROM oxpull_oxpulluniquelock WHERE {competitor.key_column} = ?", key)

    with competitor.holding(key), anyio.fail_after(3):
        assert await again(store, before) == before.answer


async def test_members_of_a_batch_that_is_gone_are_known_by_their_rows(store: Store, competitor: Competitor):
    batch_id = await opened(store)
    before, _ = await lost(store, batch_id)
    competitor.run(f"DELETE FROM {MEMBERS} WHERE batch_id = ?", batch_id)
    competitor.run(f"DELETE FROM {BATCHES} WHERE id = ?", batch_id)

    assert await again(store, before) == before.answer


async def test_what_was_not_committed_is_done(store: Store, competitor: Competitor):
    batch_id = await opened(store)
    before, members = await lost(store, batch_id)
    competitor.run(f"DELETE FROM {MEMBERS} WHERE batch_id = ?", batch_id)
    for task_id in members:
        competitor.delete_task(task_id)

    answer = await again(store, before)

    assert answer == Added([Inserted()] * 4)
    assert members_of(competitor, batch_id) == {unique.task.id for unique in before.addition.uniques}


async def test_a_task_that_is_a_member_since_another_call_was_not_added_by_this_one(
    store: Store, competitor: Competitor
):
    batch_id = await opened(store)
    pending = new_unique("pending")
    await store.insert_unique([pending], wait_seconds=1)
    addition = Addition(batch_id, [], [new_unique("pending")], now())
    joined = Added([Held(pending.task.id, await store.get_task(pending.task.id))])
    await add(store, batch_id, uniques=[new_unique("pending")])

    answer = await store.batches.add(addition, wait_seconds=5, passes=5, unheard=[joined])

    assert isinstance(answer, Added)
    assert answer.repeated == {pending.task.id}


@pytest.mark.engines("postgres", "mysql")
async def test_a_commit_that_comes_late_is_not_done_again(store: Store, competitor: Competitor):
    batch_id = await opened(store)
    unique = new_unique("a")
    competitor.begin()
    taker = competitor.insert_unique(unique.key)
    competitor.run(f"UPDATE {BATCHES} SET status = 'OPEN' WHERE id = ?", batch_id)
    competitor.insert_task(id=unique.task.id, status="SUCCESSFUL")  # it has run, and somebody else has its key
    competitor.run(
        f"INSERT INTO {MEMBERS} (task_id, created_at, batch_id) VALUES (?, ?, ?)", unique.task.id, now(), batch_id
    )
    answers = []

    async def add_again() -> None:
        addition = Addition(batch_id, [], [unique], now())
        answers.append(await store.batches.add(addition, wait_seconds=5, passes=5, unheard=[Added([Inserted()])]))

    async with anyio.create_task_group() as group:
        group.start_soon(add_again)
        with competitor.another() as observer:
            await eventually(lambda: observer.waiting_sessions() == 1)
        await aside(competitor.commit)

    assert answers == [Added([Inserted()])]
    assert members_of(competitor, batch_id) == {unique.task.id}
    assert competitor.locks() == {unique.key: taker}
