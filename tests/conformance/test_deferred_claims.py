"""Claims where rows have a ``run_after``: what isn't due is out of the way, what is due has its place in the order."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from oxpull_async._ids import new_id
from oxpull_async.drivers._store import SqlStore
from oxpull_async.ports import NewTask, Store
from tests.conformance.rows import PATH, ids, new_task, now, request
from tests.scale import rounds

OTHER = "proof.tasks.other"
MANY = rounds(small=1_100, full=5_000)
"""More than are put in order anew at each claim."""


def aged(moment: datetime, age: int, **values: object) -> NewTask:
    return new_task(id=new_id(), enqueued_at=moment - timedelta(seconds=age), **values)


def in_order(tasks: list[NewTask]) -> list[UUID]:
    return [task.id for task in sorted(tasks, key=lambda task: (-task.priority, task.enqueued_at))]


def mixed(moment: datetime, paths: list[str]) -> list[NewTask]:
    """Rows without a run_after and rows whose run_after has come, in one order of priority and age."""
    return [
        aged(
            moment,
            age,
            priority=age % 3,
            task_path=paths[age % len(paths)],
            run_after=moment - timedelta(seconds=age * 7 % 31) if age % 2 else None,
        )
        for age in range(40)
    ]


@pytest.mark.parametrize("paths", [[PATH], [PATH, OTHER]], ids=["one path", "two paths"])
@pytest.mark.parametrize("limit", [7, 100])
async def test_priority_then_age_is_the_order_whether_or_not_a_row_was_deferred(
    store: Store, paths: list[str], limit: int
):
    moment = now()
    tasks = mixed(moment, paths)
    await store.insert_tasks(tasks)
    await store.insert_tasks([aged(moment, 99, priority=5, run_after=moment + timedelta(hours=1)) for _ in range(3)])

    found: list[UUID] = []
    while claims := await store.claim(request(task_paths=paths, limit=limit, now=moment)):
        found += ids(claims)

    assert found == in_order(tasks)


async def test_the_order_holds_where_very_many_deferred_rows_are_due_at_once(store: Store):
    moment = now()
    storm = [aged(moment, age % 50, priority=age % 3, run_after=moment) for age in range(MANY)]
    calm = [aged(moment, age, priority=age % 3, task_path=OTHER, run_after=moment) for age in range(9)]
    fresh = [aged(moment, age, priority=age % 3) for age in range(9)]
    await store.insert_tasks([*storm, *calm, *fresh])
    await store.insert_tasks([aged(moment, 60, priority=2, run_after=moment + timedelta(hours=1)) for _ in range(20)])

    claims = await store.claim(request(task_paths=[PATH, OTHER], limit=100, now=moment))

    places = [(-claim.priority, claim.enqueued_at) for claim in claims]
    assert places == sorted((-task.priority, task.enqueued_at) for task in [*storm, *calm, *fresh])[:100]
    assert {claim.run_after for claim in claims} <= {None, moment}


@pytest.mark.parametrize("queues", [None, ["default"]])
async def test_deferred_rows_of_closed_or_other_queues_are_not_granted_and_hold_up_nobody(
    store: SqlStore, queues: list[str] | None
):
    moment = now()
    await store.pause_queue("paused")
    await store.insert_tasks(
        [
            aged(moment, age, priority=9, queue_name=queue, run_after=moment)
            for age in range(5)
            for queue in (["paused"] if queues is None else ["paused", "other"])
        ]
    )
    tasks = [aged(moment, age, run_after=moment if age % 2 else None) for age in range(10)]
    await store.insert_tasks(tasks)

    assert ids(await store.claim(request(queues=queues, now=moment))) == in_order(tasks)


async def test_an_exclusive_look_and_a_peek_see_the_same_order(store: SqlStore):
    moment = now()
    tasks = mixed(moment, [PATH, OTHER])
    await store.insert_tasks(tasks)
    wanted = request(task_paths=[PATH, OTHER], limit=12, now=moment)

    candidates = await store._pool.transact(store._room.exclusive.lock_due(wanted, 12))
    heads = await store._pool.read(store._room.limits.peek(wanted))

    assert [candidate.id for candidate in candidates] == in_order(tasks)[:12]
    assert list(heads)[:12] == [(-a, b) for a, b in sorted((-t.priority, t.enqueued_at) for t in tasks)][:12]


async def test_where_the_next_rows_are_all_of_other_queues_the_instant_of_one_of_them_is_named(store: Store):
    moment = now()
    await store.insert_tasks(
        [aged(moment, 0, queue_name="other", run_after=moment + timedelta(minutes=n)) for n in range(1, 301)]
    )
    (mine,) = [aged(moment, 0, run_after=moment + timedelta(minutes=400))]
    await store.insert_tasks([mine])

    asked, seen = moment, []
    while (due := await store.next_due(task_paths=[PATH], queues=["default"], after=asked)) is not None:
        seen.append(due)
        asked = due

    assert seen[-1] == mine.run_after
    assert len(seen) <= 3
