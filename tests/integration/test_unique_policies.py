"""What a duplicate does, each way, in transactions of our own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import DuplicateTask, InvalidArguments, InvalidTask, Oxpull, TaskStatus, Unique
from oxpull_async.core.uniqueness import OnDuplicate
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.integration.policy_tasks import (
    PATH,
    arguments,
    claimed,
    held_unique,
    holds,
    reruns,
    rows,
    settle,
    task_of,
)

KINDS = ["raise", "reschedule", "replace", "rerun", "ready", "window"]


async def end_elsewhere(competitor: Competitor, ox: Oxpull, status: str) -> None:
    """As another program's worker does, which knows nothing of reruns."""
    claim = await claimed(ox)
    competitor.set_task(claim.id, status=status, finished_at=datetime.now(UTC))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_call_is_created(ox: Oxpull, competitor: Competitor, kind: str) -> None:
    result = await task_of(ox, kind).enqueue("a", 1)

    assert result.created
    assert rows(competitor) == {result.id: ("READY", ["a", 1])}


@pytest.mark.parametrize("kind", KINDS)
async def test_other_keys_are_apart(ox: Oxpull, kind: str) -> None:
    task = task_of(ox, kind)

    assert (await task.enqueue("a")).created
    assert (await task.enqueue("b")).created


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_is_shared_neither_with_plain_unique_nor_with_another_queue(ox: Oxpull, kind: str) -> None:
    assert (await task_of(ox, kind).enqueue("a")).created
    assert (await ox.reference(PATH, unique=True).enqueue("a")).created
    assert (await task_of(ox, kind, queue_name="other").enqueue("a")).created


@pytest.mark.parametrize("kind", ["raise", "reschedule", "replace", "rerun"])
@pytest.mark.parametrize("status", ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "WAITING"])
async def test_a_settled_holder_has_let_go(ox: Oxpull, competitor: Competitor, kind: str, status: str) -> None:
    task = task_of(ox, kind)
    first = await task.enqueue("a")
    competitor.set_task(first.id, status=status)

    second = await task.enqueue("a")

    assert second.created
    assert second.id != first.id


@pytest.mark.parametrize("kind", KINDS)
async def test_a_holder_that_is_deleted_has_let_go(ox: Oxpull, competitor: Competitor, kind: str) -> None:
    task = task_of(ox, kind)
    competitor.delete_task((await task.enqueue("a")).id)

    assert (await task.enqueue("a")).created


# raise


@pytest.mark.parametrize("status", ["READY", "RUNNING"])
async def test_raise_tells_who_holds_the_key(ox: Oxpull, competitor: Competitor, status: str) -> None:
    task = task_of(ox, "raise")
    first = await task.enqueue("a", 1)
    if status == "RUNNING":
        await claimed(ox)

    with pytest.raises(DuplicateTask, match=str(first.id)) as refusal:
        await task.enqueue("a", 2)

    assert refusal.value.holder.id == refusal.value.holder_id == first.id
    assert refusal.value.holder_status is TaskStatus(status)
    assert refusal.value.holder.args == ["a", 1]
    assert len(rows(competitor)) == 1


async def test_raise_in_a_bulk_call_leaves_nothing_of_it(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "raise")
    first = await task.enqueue("b")

    with pytest.raises(DuplicateTask) as refusal:
        await task.enqueue_many([("a",), ("b",), ("c",)])

    assert refusal.value.holder_id == first.id
    assert list(rows(competitor)) == [first.id]


async def test_raise_takes_a_repeat_within_a_bulk_call_for_a_duplicate(ox: Oxpull, competitor: Competitor) -> None:
    with pytest.raises(DuplicateTask):
        await task_of(ox, "raise").enqueue_many([("a",), ("b",), ("a",)])

    assert rows(competitor) == {}


# reschedule


async def test_reschedule_moves_a_waiting_holder(ox: Oxpull) -> None:
    task = task_of(ox, "reschedule")
    first = await task.using(run_after=10).enqueue("a", 1)

    second = await task.using(run_after=50).enqueue("a", 2)

    assert first.run_after is not None
    assert second.run_after is not None
    assert not second.created
    assert second.id == first.id
    assert second.args == ["a", 1]
    assert second.run_after - first.run_after >= timedelta(seconds=40)
    assert (await first.refresh()).run_after == second.run_after


async def test_reschedule_goes_no_further_than_max_delay_after_the_enqueue(ox: Oxpull) -> None:
    task = task_of(ox, "reschedule")
    first = await task.using(run_after=10).enqueue("a")

    second = await task.using(run_after=5000).enqueue("a")

    assert second.run_after == first.enqueued_at + timedelta(seconds=100)


async def test_max_delay_bounds_the_first_call_too(ox: Oxpull) -> None:
    first = await task_of(ox, "reschedule").using(run_after=5000).enqueue("a")

    assert first.run_after == first.enqueued_at + timedelta(seconds=100)


async def test_reschedule_without_a_delay_lets_the_holder_run_at_once(ox: Oxpull) -> None:
    task = task_of(ox, "reschedule")
    await task.using(run_after=50).enqueue("a")

    second = await task.enqueue("a")

    assert second.run_after is None
    assert (await claimed(ox)).id == second.id


async def test_reschedule_returns_a_running_holder_as_it_is(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "reschedule")
    first = await task.enqueue("a")
    await claimed(ox)
    before = competitor.row(first.id)

    second = await task.using(run_after=50).enqueue("a")

    assert (second.id, second.created, second.status) == (first.id, False, TaskStatus.RUNNING)
    assert competitor.row(first.id) == before


# replace


async def test_replace_gives_a_waiting_holder_the_new_arguments(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "replace", priority=3)
    first = await task.using(run_after=0.001).enqueue("a", 1)

    second = await task.using(priority=9).enqueue("a", value=[2, {"k": "é"}])

    assert (second.id, second.created) == (first.id, False)
    assert (second.args, second.kwargs) == (["a"], {"value": [2, {"k": "é"}]})
    assert (second.priority, second.run_after) == (3, first.run_after)
    assert (await first.refresh()).kwargs == {"value": [2, {"k": "é"}]}
    assert len(rows(competitor)) == 1


async def test_replace_leaves_a_running_holder_as_it_is(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "replace")
    first = await task.enqueue("a", 1)
    await claimed(ox)
    before = competitor.row(first.id)

    second = await task.enqueue("a", 2)

    assert (second.id, second.args) == (first.id, ["a", 1])
    assert competitor.row(first.id) == before


@pytest.mark.parametrize("kind", ["replace", "rerun"])
async def test_replacing_arguments_are_checked_as_new_ones_are(ox: Oxpull, competitor: Competitor, kind: str) -> None:
    task = task_of(ox, kind)
    await task.enqueue("a", 1)

    with pytest.raises(InvalidArguments):
        await task.enqueue("a", float("nan"))

    assert arguments(competitor) == [["a", 1]]


@pytest.mark.parametrize("kind", ["replace", "rerun"])
async def test_in_a_bulk_call_the_last_arguments_stay(ox: Oxpull, competitor: Competitor, kind: str) -> None:
    task = task_of(ox, kind)
    held = await task.enqueue("h", 0)

    results = await task.enqueue_many([("a", 1), ("h", 1), ("a", 2), ("b", 1), ("h", 2), ("a", 3)])

    assert [result.created for result in results] == [True, False, False, True, False, False]
    assert [result.args[1] for result in results] == [1, 1, 2, 1, 2, 3]
    assert results[1].id == results[4].id == held.id
    assert arguments(competitor) == [["a", 3], ["b", 1], ["h", 2]]


# rerun


async def test_rerun_replaces_while_the_holder_waits(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    first = await task.enqueue("a", 1)

    second = await task.enqueue("a", 2)

    assert (second.id, second.args) == (first.id, ["a", 2])
    assert reruns(competitor) == []


@pytest.mark.parametrize("ending", ["SUCCESSFUL", "FAILED"])
async def test_a_running_holder_is_followed_by_one_run_with_the_latest_arguments(
    ox: Oxpull, competitor: Competitor, ending: str
) -> None:
    task = task_of(ox, "rerun")
    first = await task.enqueue("a", 1)
    claim = await claimed(ox)

    asked = [await task.enqueue("a", value) for value in (2, 3, 4)]
    assert {(result.id, result.created, result.status) for result in asked} == {(first.id, False, TaskStatus.RUNNING)}
    assert arguments(competitor) == []
    await settle(ox, claim, ending=ending)

    assert arguments(competitor) == [["a", 4]]
    assert reruns(competitor) == []
    again = await task.enqueue("a", 5)  # the rerun holds the key
    assert not again.created
    await settle(ox, await claimed(ox))
    assert arguments(competitor) == []
    assert len(rows(competitor)) == 2


async def test_a_rerun_waits_through_the_retries_of_the_holder(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)

    await settle(ox, claim, ending="READY")
    assert (arguments(competitor), reruns(competitor)) == ([["a", 1]], [["a", 2]])
    assert await ox.unique.sweep() == 0
    await settle(ox, await claimed(ox))

    assert arguments(competitor) == [["a", 2]]


async def test_a_holder_that_waits_for_its_retry_takes_the_arguments_and_needs_no_rerun(
    ox: Oxpull, competitor: Competitor
) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)
    await settle(ox, claim, ending="READY")

    await task.enqueue("a", 3)

    assert (arguments(competitor), reruns(competitor)) == ([["a", 3]], [])


@pytest.mark.parametrize("ending", ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "gone"])
async def test_a_sweep_finds_what_ended_elsewhere(ox: Oxpull, competitor: Competitor, ending: str) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)
    if ending == "gone":
        competitor.delete_task(claim.id)
    else:
        competitor.set_task(claim.id, status=ending, finished_at=datetime.now(UTC))

    assert await ox.unique.sweep() == 1
    assert await ox.unique.sweep() == 0

    assert arguments(competitor) == [["a", 2]]


async def test_a_sweep_leaves_what_still_runs(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    await claimed(ox)
    await task.enqueue("a", 2)

    assert await ox.unique.sweep() == 0
    assert reruns(competitor) == [["a", 2]]


async def test_a_call_that_comes_before_the_sweep_is_the_rerun(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)
    competitor.set_task(claim.id, status="SUCCESSFUL")

    third = await task.enqueue("a", 3)

    assert third.created
    assert await ox.unique.sweep() == 0
    assert (arguments(competitor), reruns(competitor)) == ([["a", 3]], [])


async def test_a_holder_that_ends_while_its_rerun_is_asked_for_is_followed_at_once(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    keys = ox.store.keys
    original = keys.read_rerun

    async def ended_meanwhile(key: str) -> Any:
        await aside(lambda: competitor.set_task(claim.id, status="SUCCESSFUL"))
        return await original(key)

    monkeypatch.setattr(keys, "read_rerun", ended_meanwhile)
    await task.enqueue("a", 2)

    assert (arguments(competitor), reruns(competitor)) == ([["a", 2]], [])


async def test_rerun_works_without_arguments_to_tell_calls_apart(ox: Oxpull, competitor: Competitor) -> None:
    task = ox.reference(PATH, unique=Unique(on_duplicate="rerun"))
    await task.enqueue()
    claim = await claimed(ox)
    await task.enqueue()
    await settle(ox, claim)

    assert arguments(competitor) == [[]]


# hold="ready"


async def test_a_key_that_is_held_until_the_start_has_one_running_and_one_waiting(
    ox: Oxpull, competitor: Competitor
) -> None:
    task = task_of(ox, "ready")
    first = await task.enqueue("a", 1)
    assert not (await task.enqueue("a", 2)).created
    await claimed(ox)

    second = await task.enqueue("a", 3)
    third = await task.enqueue("a", 4)

    assert second.created
    assert (third.created, third.id) == (False, second.id)
    assert rows(competitor) == {first.id: ("RUNNING", ["a", 1]), second.id: ("READY", ["a", 3])}
    assert list(holds(competitor).values()) == [second.id]
    assert competitor.locks() == {}


async def test_a_started_holder_that_waits_again_holds_its_key_if_nobody_took_it(ox: Oxpull) -> None:
    task = task_of(ox, "ready")
    first = await task.enqueue("a")
    await settle(ox, await claimed(ox), ending="READY")

    assert (await task.enqueue("a")).id == first.id


@pytest.mark.parametrize(("on_duplicate", "value"), [("return", 1), ("replace", 2)])
async def test_a_hold_knows_the_other_deeds_too(ox: Oxpull, on_duplicate: OnDuplicate, value: int) -> None:
    task = ox.reference(PATH, unique=held_unique(on_duplicate, hold="ready"))
    first = await task.enqueue("a", 1)

    second = await task.enqueue("a", 2)

    assert (second.id, second.args) == (first.id, ["a", value])


# window


@pytest.mark.parametrize("status", ["READY", "RUNNING", "SUCCESSFUL", "FAILED", "LOST", "DISCARDED"])
async def test_within_its_window_a_key_is_held_whatever_becomes_of_the_task(
    ox: Oxpull, competitor: Competitor, status: str
) -> None:
    task = task_of(ox, "window")
    first = await task.enqueue("a")
    if status != "READY":
        competitor.set_task(first.id, status=status)

    second = await task.enqueue("a")

    assert (second.id, second.created, second.status) == (first.id, False, TaskStatus(status))


@pytest.mark.parametrize(("status", "is_held"), [("READY", True), ("RUNNING", True), ("SUCCESSFUL", False)])
async def test_after_its_window_a_key_goes_by_the_status(
    ox: Oxpull, competitor: Competitor, status: str, is_held: bool
) -> None:
    task = task_of(ox, "window")
    first = await task.enqueue("a")
    competitor.run("UPDATE oxpull_async_hold SET held_until = ?", datetime(2020, 1, 1, tzinfo=UTC))
    if status != "READY":
        competitor.set_task(first.id, status=status)

    second = await task.enqueue("a")

    assert second.created is not is_held
    assert (await task.enqueue("a")).id == second.id


async def test_a_window_is_told_by_the_clock_of_the_oxpull(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "window")
    first = await task.enqueue("a")
    competitor.set_task(first.id, status="SUCCESSFUL")
    ox.clock.read_from(lambda: first.enqueued_at + timedelta(seconds=1001))

    assert (await task.enqueue("a")).created


async def test_raise_within_a_window_names_the_task_that_has_ended(ox: Oxpull, competitor: Competitor) -> None:
    task = ox.reference(PATH, unique=held_unique("raise", window=100))
    first = await task.enqueue("a")
    competitor.set_task(first.id, status="SUCCESSFUL")

    with pytest.raises(DuplicateTask) as refusal:
        await task.enqueue("a")

    assert refusal.value.holder_status is TaskStatus.SUCCESSFUL


@pytest.mark.parametrize("kind", ["ready", "window"])
async def test_many_calls_find_their_holds(ox: Oxpull, competitor: Competitor, kind: str) -> None:
    task = task_of(ox, kind)
    stale = await task.enqueue("s")
    competitor.set_task(stale.id, status="FAILED")
    competitor.run("UPDATE oxpull_async_hold SET held_until = NULL")
    held = await task.enqueue("h")

    results = await task.enqueue_many([("s",), ("n",), ("h",), ("n",)])

    assert [result.created for result in results] == [True, True, False, False]
    assert results[2].id == held.id
    assert results[1].id == results[3].id
    assert set(holds(competitor).values()) == {results[0].id, results[1].id, held.id}


async def test_no_calls_are_no_trouble(ox: Oxpull) -> None:
    assert await task_of(ox, "window").enqueue_many([]) == []


# prune


async def test_prune_deletes_holds_that_nobody_has(ox: Oxpull, competitor: Competitor) -> None:
    ready, window = task_of(ox, "ready"), task_of(ox, "window")
    kept = [await ready.enqueue("ready"), await ready.enqueue("running"), await window.enqueue("ended")]
    over = [await ready.enqueue("settled"), await window.enqueue("gone")]
    competitor.set_task(kept[1].id, status="RUNNING")
    competitor.set_task(kept[2].id, status="SUCCESSFUL")
    competitor.set_task(over[0].id, status="FAILED")
    competitor.delete_task(over[1].id)

    pruned = await ox.prune()

    assert pruned.locks == 2
    assert set(holds(competitor).values()) == {result.id for result in kept}


# ox.unique


async def test_the_holder_of_a_key_is_told(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    assert await ox.unique.holder(task, "a") is None
    first = await task.enqueue("a", 1)

    queued = await ox.unique.holder(task, "a", 99)
    assert queued is not None
    assert (queued.task.id, queued.because, queued.since) == (first.id, "queued", first.enqueued_at)
    await claimed(ox)
    await task.enqueue("a", 2)
    running = await ox.unique.holder(task, "a")

    assert running is not None
    assert running.because == "running"
    assert running.rerun_asked_at is not None
    competitor.set_task(first.id, status="FAILED")
    assert await ox.unique.holder(task, "a") is None


async def test_a_window_is_told_as_the_reason(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "window")
    first = await task.enqueue("a")
    competitor.set_task(first.id, status="SUCCESSFUL")

    held = await ox.unique.holder(task, "a")

    assert held is not None
    assert (held.because, held.held_until) == ("window", first.enqueued_at + timedelta(seconds=1000))


@pytest.mark.parametrize("kind", [*KINDS, "plain"])
async def test_a_key_can_be_released_by_hand(
    ox: Oxpull, competitor: Competitor, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    task = ox.reference(PATH, unique=True) if kind == "plain" else task_of(ox, kind)
    first = await task.enqueue("a")

    assert await ox.unique.release(task, "a", reason="it hangs")

    assert "it hangs" in caplog.text
    assert not await ox.unique.release(task, "a", reason="again")
    second = await task.enqueue("a")
    assert second.created
    assert set(rows(competitor)) == {first.id, second.id}


# Workers of ours


async def test_a_worker_enqueues_the_rerun_with_the_outcome(ox: Oxpull, competitor: Competitor) -> None:
    seen: list[int] = []

    @ox.task(unique=Unique(by=("name",), on_duplicate="rerun"))
    async def count(name: str, value: int) -> None:
        seen.append(value)
        if value < 3:
            assert not (await count.enqueue(name, value + 1)).created

    await count.enqueue("a", 1)

    assert await ox.run_until_idle() == 3  # which doesn't sweep
    assert seen == [1, 2, 3]
    assert reruns(competitor) == []


async def test_a_failure_is_followed_by_the_rerun_too(ox: Oxpull, competitor: Competitor) -> None:
    seen: list[int] = []

    @ox.task(max_attempts=1, unique=Unique(by=("name",), on_duplicate="rerun"))
    async def count(name: str, value: int) -> None:
        seen.append(value)
        if value == 1:
            await count.enqueue(name, 2)
            raise ValueError("told to fail")

    await count.enqueue("a", 1)
    await ox.run_until_idle()

    assert seen == [1, 2]
    assert sorted(status for status, _ in rows(competitor).values()) == ["FAILED", "SUCCESSFUL"]


async def test_while_it_is_open_an_oxpull_sweeps_by_itself(ox: Oxpull, competitor: Competitor) -> None:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)
    competitor.set_task(claim.id, status="LOST", finished_at=datetime.now(UTC))

    async with ox.running():
        await eventually(lambda: arguments(competitor) == [["a", 2]], within=20)


@pytest.mark.parametrize("kind", ["ready", "window"])
async def test_schedules_and_batches_refuse_holds(ox: Oxpull, kind: str) -> None:
    async with ox.running(), ox.batches.create("b") as batch:
        with pytest.raises(InvalidTask, match="hold="):
            await batch.add(task_of(ox, kind), "a")
