"""Claims of exclusive tasks: a row runs together with a place of its key, or it isn't touched but for its run_after."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from oxpull_async.core.exclusivity import RESERVED_SECONDS
from oxpull_async.ports import Store
from oxpull_async.ports_exclusive import HeldPlace, OnConflict, Waiting
from tests.conformance.exclusive_rows import acquired, ask, claim, counts, in_line, run_out, wanted
from tests.conformance.rows import AGES_AGO, LEASE, PATH, WORKER, ids, inserted, new_task, now, row
from tests.integration.competitor import Competitor


async def test_a_granted_row_runs_and_has_its_key(store: Store, competitor: Competitor):
    (task,) = await inserted(store, args='["a"]')

    claims = await claim(store)

    ((granted, held),) = claims.granted
    assert (granted.id, granted.args, granted.attempts, granted.lease_epoch) == (task.id, '["a"]', 1, 1)
    found = await row(store, task.id)
    assert (found.status, found.attempts, found.lease_epoch, found.locked_by) == ("RUNNING", 1, 1, WORKER)
    assert json.loads(found.worker_ids) == [WORKER]
    assert found.lease_expires_at is not None
    assert found.locked_at is not None
    assert found.lease_expires_at - found.locked_at == timedelta(seconds=LEASE)
    assert held == HeldPlace(wanted("key:a").key, held.token, task.id, 60.0)
    assert isinstance(await ask(store, wanted("key:a")), Waiting)
    assert counts(competitor) == (1, 1)


async def test_of_one_key_one_row_runs_and_the_others_stay_ready(store: Store):
    tasks = await inserted(store, count=4, args='["a"]')

    claims = await claim(store)

    assert len(claims.granted) == 1
    assert (claims.refused, claims.skipped, claims.has_more) == ([], [], False)
    rows = [await row(store, task.id) for task in tasks]
    (running,) = [found for found in rows if found.status == "RUNNING"]
    assert running.id == tasks[0].id
    for found in rows[1:]:
        assert (found.status, found.attempts, found.lease_epoch, found.locked_by) == ("READY", 0, 0, None)
        assert found.run_after is not None
        assert found.run_after > now() + timedelta(seconds=50)
        assert (found.started_at, found.worker_ids, found.errors) == (None, "[]", "[]")


async def test_rows_of_other_keys_run_beside_it(store: Store):
    tasks = [new_task(args=json.dumps([key])) for key in "aabbc"]
    await store.insert_tasks(tasks)

    claims = await claim(store)

    assert {c.id for c, _ in claims.granted} == {tasks[0].id, tasks[2].id, tasks[4].id}


async def test_rows_are_taken_by_priority_then_age(store: Store):
    tasks = [
        new_task(args=json.dumps([f"{priority}/{age}"]), priority=priority, enqueued_at=AGES_AGO + timedelta(age))
        for priority, age in [(0, 2), (5, 3), (-5, 0), (0, 1), (5, 1)]
    ]
    await store.insert_tasks(tasks)

    first, rest = await claim(store, limit=2), await claim(store)

    in_order = [tasks[index].id for index in (4, 1, 3, 0, 2)]
    assert [c.id for c, _ in (*first.granted, *rest.granted)] == in_order


async def test_no_more_rows_run_than_asked_for_and_the_rest_is_left_as_it_is(store: Store):
    tasks = [new_task(args=json.dumps([number])) for number in range(5)]
    await store.insert_tasks(tasks)

    assert len((await claim(store, limit=2)).granted) == 2

    assert [(await row(store, task.id)).run_after for task in tasks[2:]] == [None] * 3


async def test_a_claim_tells_whether_there_may_be_more_to_look_at(store: Store):
    await inserted(store, count=3, args='["a"]')

    first = await claim(store, look=2)
    second = await claim(store, look=2)

    assert (len(first.granted), first.has_more) == (1, True)
    assert (len(second.granted), second.has_more) == (0, False)


async def test_a_row_that_isn_t_due_of_another_path_or_queue_is_left_alone(store: Store):
    await inserted(store, args='["a"]', run_after=now() + timedelta(minutes=1))
    await inserted(store, args='["b"]', task_path=f"{PATH}er")
    await inserted(store, args='["c"]', queue_name="other")

    assert (await claim(store, queues=["default"])).granted == ()


async def test_many_places_let_as_many_rows_run(store: Store):
    await inserted(store, count=5, args='["a"]')

    assert len((await claim(store, capacity=3)).granted) == 3
    assert len((await claim(store, capacity=3)).granted) == 0


async def test_a_caller_keeps_a_task_out(store: Store):
    held = await acquired(store, wanted("key:a"))
    (task,) = await inserted(store, args='["a"]')
    assert (await claim(store)).granted == []

    _, freed = await store.exclusive.release([held])

    assert (freed.callers, freed.tasks) == ([], [task.id])
    assert (await row(store, task.id)).run_after is None
    assert len((await claim(store)).granted) == 1


# Turns


async def test_a_release_makes_the_next_row_due_and_keeps_the_place_for_it(store: Store):
    first, second, third = await inserted(store, count=3, args='["a"]')
    ((_, held),) = (await claim(store)).granted

    _, freed = await store.exclusive.release([held])

    assert freed.tasks == [second.id]
    assert (await row(store, second.id)).run_after is None
    third_row = await row(store, third.id)
    assert third_row.run_after is not None
    answer = await ask(store, wanted("key:a"))
    assert isinstance(answer, Waiting)
    assert answer.seconds < RESERVED_SECONDS + 1
    ((granted, again),) = (await claim(store)).granted
    assert granted.id == second.id
    assert again.token > held.token
    assert first.id != second.id


async def test_rows_run_in_the_order_in_which_they_came(store: Store):
    tasks = await inserted(store, count=5, args='["a"]')
    ran = []
    for _ in tasks:
        ((granted, held),) = (await claim(store)).granted
        ran.append(granted.id)
        await store.exclusive.release([held])

    assert ran == ids(tasks)


async def test_a_newcomer_doesn_t_pass_those_in_line(store: Store):
    first, second = await inserted(store, count=2, args='["a"]')
    ((granted, held),) = (await claim(store)).granted
    assert granted.id == first.id
    await store.exclusive.release([held])
    await inserted(store, args='["a"]', priority=50)

    ((granted, _),) = (await claim(store)).granted

    assert granted.id == second.id


async def test_when_a_lease_is_over_the_first_in_line_is_due_and_takes_the_place(store: Store, competitor: Competitor):
    _, second, third = await inserted(store, count=3, args='["a"]')
    await claim(store)
    backstop, later = [(await row(store, task.id)).run_after for task in (second, third)]
    assert backstop is not None
    assert later is not None
    assert backstop < later

    run_out(competitor)
    ((granted, _),) = (await claim(store, now=backstop + timedelta(seconds=1))).granted

    assert granted.id == second.id


async def test_a_row_that_is_no_longer_ready_loses_its_place_in_line(store: Store, competitor: Competitor):
    tasks = await inserted(store, count=5, args='["a"]')
    ((_, held),) = (await claim(store)).granted
    await store.discard([tasks[1].id], now=now())
    competitor.delete_task(tasks[2].id)
    competitor.set_task(tasks[3].id, status="RUNNING")

    _, freed = await store.exclusive.release([held])

    assert freed.tasks == [tasks[4].id]
    assert counts(competitor) == (1, 0)


async def test_a_row_that_was_moved_meanwhile_stays_where_it_is(store: Store, competitor: Competitor):
    _, moved = await inserted(store, count=2, args='["a"]')
    ((_, held),) = (await claim(store)).granted
    tomorrow = now() + timedelta(days=1)
    competitor.set_task(moved.id, run_after=tomorrow)

    await store.exclusive.release([held])

    assert (await row(store, moved.id)).run_after == tomorrow


async def test_a_row_whose_place_was_kept_in_vain_comes_again(store: Store, competitor: Competitor):
    _, second = await inserted(store, count=2, args='["a"]')
    ((_, held),) = (await claim(store)).granted
    await store.exclusive.release([held])
    run_out(competitor)
    other = await acquired(store, wanted("key:a"))

    assert (await claim(store)).granted == []
    await store.exclusive.release([other])

    ((granted, _),) = (await claim(store)).granted
    assert granted.id == second.id


async def test_an_earlier_run_of_the_same_row_keeps_its_place_until_its_lease_is_over(
    store: Store, competitor: Competitor
):
    (task,) = await inserted(store, args='["a"]')
    ((granted, _),) = (await claim(store)).granted
    await store.release([granted], worker_id=WORKER)

    assert (await claim(store)).granted == []

    run_out(competitor)
    competitor.set_task(task.id, run_after=None)
    ((again, _),) = (await claim(store)).granted
    assert again.id == task.id


async def test_tasks_and_callers_stand_in_one_line(store: Store):
    held = await acquired(store, wanted("key:a"))
    (task,) = await inserted(store, args='["a"]')
    await claim(store)
    caller = await in_line(store, wanted("key:a"))

    _, freed = await store.exclusive.release([held])
    assert freed.tasks == [task.id]
    ((_, held),) = (await claim(store)).granted
    _, freed = await store.exclusive.release([held])
    assert freed.callers == [caller.owner]


# skip, fail


async def test_a_row_that_is_to_be_skipped_is_discarded_with_the_reason(store: Store):
    first, second = await inserted(store, count=2, args='["a"]')

    claims = await claim(store, OnConflict.SKIP)

    assert ids([c for c, _ in claims.granted]) == [first.id]
    assert claims.skipped == [second.id]
    found = await row(store, second.id)
    assert (found.status, found.attempts, found.started_at, found.run_after) == ("DISCARDED", 0, None, None)
    assert found.finished_at is not None
    assert json.loads(found.errors) == [{"exception_class_path": "a.Busy", "traceback": "busy"}]


async def test_a_row_that_is_to_fail_spends_an_attempt(store: Store, competitor: Competitor):
    first, second = await inserted(store, count=2, args='["a"]')

    claims = await claim(store, OnConflict.FAIL)

    assert ids([c for c, _ in claims.granted]) == [first.id]
    assert ids(claims.refused) == [second.id]
    found = await row(store, second.id)
    assert (found.status, found.attempts, found.lease_epoch) == ("RUNNING", 1, 1)
    assert counts(competitor) == (1, 0)


# Crowds


async def test_many_claims_at_once_never_let_two_rows_of_a_key_run(store: Store):
    tasks = [new_task(args=json.dumps([number % 3])) for number in range(30)]
    await store.insert_tasks(tasks)
    running = dict[str, int]()
    ran, tokens = list[str](), dict[str, int]()

    async def work(worker: int) -> None:
        while len(ran) < len(tasks):
            claims = await claim(store, worker_id=f"worker-{worker}", limit=4, look=8)
            for _, held in claims.granted:
                assert not running.get(held.key)
                assert held.token > tokens.get(held.key, 0)
                running[held.key], tokens[held.key] = 1, held.token
            await asyncio.sleep(0)
            for _, held in claims.granted:
                running[held.key] = 0
            await store.exclusive.release([held for _, held in claims.granted])
            ran.extend(str(granted.id) for granted, _ in claims.granted)

    await asyncio.gather(*map(work, range(4)))

    assert sorted(ran) == sorted(str(task.id) for task in tasks)
