"""What duplicates do inside a caller's transaction: it commits with the caller's rows and rolls back with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from oxpull_async import DuplicateTask, Oxpull, TransactionRolledBack, UniqueEnqueueRace
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor, aside
from tests.integration.policy_tasks import arguments, claimed, holds, reruns, rows, settle, task_of
from tests.joined.calls import own_rows
from tests.joined.handles import SERIALIZABLE, Caller

pytestmark = pytest.mark.usefixtures("few")

KINDS = ["raise", "reschedule", "replace", "rerun", "ready", "window"]


def state(competitor: Competitor) -> Any:
    """All that an enqueue may change."""
    tasks = competitor.rows("SELECT id, status, args, run_after FROM django_ox_oxtask")
    return sorted(map(str, tasks)), competitor.locks(), holds(competitor), reruns(competitor)


async def twice(caller: Caller, ox: Oxpull, task: AnyTask, *values: int) -> list[Any]:
    """Enqueue in the caller's transaction, with a row of the caller's own before and after."""
    bound = ox.bind(caller.bindable)
    await caller.order(1)
    results = [await bound.enqueue(task.using(run_after=30), "a", value) for value in values]
    await caller.order(2)
    return results


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_key_commits_with_the_callers_rows(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    await caller.begin(level)
    (result,) = await twice(caller, ox, task_of(ox, kind), 1)
    assert rows(competitor) == {}
    await caller.commit()

    assert result.created
    assert rows(competitor) == {result.id: ("READY", ["a", 1])}
    assert own_rows(competitor) == {1, 2}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_key_rolls_back_with_the_callers_rows(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    before = state(competitor)
    await caller.begin(level)
    await twice(caller, ox, task_of(ox, kind), 1)
    await caller.rollback()

    assert state(competitor) == before
    assert own_rows(competitor) == set()
    assert (await task_of(ox, kind).enqueue("a")).created


@pytest.mark.parametrize("kind", ["reschedule", "replace", "rerun", "ready", "window"])
async def test_a_duplicate_of_a_key_of_the_same_transaction_is_found_in_it(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    await caller.begin(level)
    first, second = await twice(caller, ox, task_of(ox, kind), 1, 2)
    await caller.commit()

    assert (second.created, second.id) == (False, first.id)
    assert arguments(competitor) == [["a", 2 if kind in ("replace", "rerun") else 1]]
    assert own_rows(competitor) == {1, 2}


@pytest.mark.parametrize("kind", ["reschedule", "replace", "rerun", "ready", "window"])
async def test_what_a_duplicate_does_rolls_back_with_the_callers_rows(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    task = task_of(ox, kind)
    first = await task.using(run_after=20).enqueue("a", 1)
    before = state(competitor)

    await caller.begin(level)
    (second,) = await twice(caller, ox, task, 2)
    assert second.id == first.id
    assert state(competitor) == before
    await caller.rollback()

    assert state(competitor) == before


async def test_a_holder_is_moved_when_the_caller_commits(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor
) -> None:
    task = task_of(ox, "reschedule")
    first = await task.using(run_after=20).enqueue("a", 1)

    await caller.begin(level)
    (second,) = await twice(caller, ox, task, 2)
    await caller.commit()

    assert (await first.refresh()).run_after == second.run_after
    assert own_rows(competitor) == {1, 2}


@pytest.mark.parametrize("kind", ["replace", "rerun"])
async def test_a_holder_takes_the_arguments_when_the_caller_commits(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    task = task_of(ox, kind)
    await task.using(run_after=20).enqueue("a", 1)

    await caller.begin(level)
    (second,) = await twice(caller, ox, task, 2)
    await caller.commit()

    assert second.args == ["a", 2]
    assert arguments(competitor) == [["a", 2]]


async def test_raise_leaves_the_transaction_usable(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor
) -> None:
    task = task_of(ox, "raise")
    first = await task.enqueue("b")

    await caller.begin(level)
    await caller.order(1)
    with pytest.raises(DuplicateTask) as refusal:
        await ox.bind(caller.bindable).enqueue_many(task, [("a",), ("b",), ("c",)])
    await caller.order(2)
    await caller.commit()

    assert refusal.value.holder_id == first.id
    assert own_rows(competitor) == {1, 2}
    assert list(rows(competitor)) == [first.id]


async def test_a_rerun_is_asked_for_by_the_callers_commit(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor
) -> None:
    task = task_of(ox, "rerun")
    first = await task.enqueue("a", 1)
    claim = await claimed(ox)

    for end, expected in ((caller.rollback, []), (caller.commit, [["a", 3]])):
        await caller.begin(level)
        bound = ox.bind(caller.bindable)
        asked = [await bound.enqueue(task, "a", value) for value in (2, 3)]
        assert {result.id for result in asked} == {first.id}
        await end()
        assert reruns(competitor) == expected

    await settle(ox, claim)
    assert arguments(competitor) == [["a", 3]]


@pytest.mark.engines("postgres", "mysql")
async def test_a_rerun_that_is_not_committed_when_the_holder_ends_is_found_by_the_sweep(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, dialect: str
) -> None:
    if (dialect, level) == ("mysql", SERIALIZABLE):
        return  # there, whatever is read can't be written by others until the commit
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)

    await caller.begin(level)
    await ox.bind(caller.bindable).enqueue(task, "a", 2)
    await settle(ox, claim)  # isn't kept waiting
    assert await ox.unique.sweep() == 0
    await caller.commit()

    assert await ox.unique.sweep() == 1
    assert arguments(competitor) == [["a", 2]]


@pytest.mark.parametrize("kind", ["ready", "window"])
async def test_a_stale_hold_is_taken_over_by_the_callers_commit(
    ox: Oxpull, caller: Caller, level: str, competitor: Competitor, kind: str
) -> None:
    task = task_of(ox, kind)
    first = await task.enqueue("a", 1)
    competitor.set_task(first.id, status="FAILED")
    competitor.run("UPDATE oxpull_async_hold SET held_until = NULL")

    for end in (caller.rollback, caller.commit):
        await caller.begin(level)
        second, third = await twice(caller, ox, task, 2, 3)
        assert (second.created, third.created, third.id) == (True, False, second.id)
        assert list(holds(competitor).values()) == [first.id]
        await end()

    assert list(holds(competitor).values()) == [second.id]
    assert arguments(competitor) == [["a", 2]]


# At a snapshot level others may have done anything since the snapshot was taken.


def _claim(competitor: Competitor, holder: UUID) -> None:
    competitor.run(
        "UPDATE django_ox_oxtask SET status = 'RUNNING', attempts = 1, lease_epoch = lease_epoch + 1 WHERE id = ?",
        holder,
    )


def _end(competitor: Competitor, holder: UUID) -> None:
    competitor.set_task(holder, status="SUCCESSFUL")


def _delete(competitor: Competitor, holder: UUID) -> None:
    competitor.delete_task(holder)


@pytest.mark.parametrize("deed", [_claim, _end, _delete], ids=["claimed", "ended", "deleted"])
@pytest.mark.parametrize("kind", ["reschedule", "replace", "rerun", "ready", "window"])
async def test_a_holder_that_changed_since_the_snapshot_is_never_changed_by_halves(
    ox: Oxpull,
    caller: Caller,
    snapshot_level: str,
    competitor: Competitor,
    kind: str,
    deed: Callable[[Competitor, UUID], None],
) -> None:
    task = task_of(ox, kind)
    first = await task.using(run_after=20).enqueue("a", 1)
    await caller.begin(snapshot_level)
    await caller.look()
    await aside(deed, competitor, first.id)
    after = rows(competitor)

    try:
        result = await ox.bind(caller.bindable).enqueue(task.using(run_after=30), "a", 2)
    except UniqueEnqueueRace as race:
        assert race.retry == "transaction"
        result = None
    except TransactionRolledBack:
        await caller.rollback()
        assert rows(competitor) == after
        return
    await caller.order(1)
    await caller.commit()

    assert own_rows(competitor) == {1}
    found = rows(competitor)
    assert {id: row for id, row in found.items() if id in after} == after  # nothing that has begun is rewritten
    new = set(found) - set(after)
    assert new == ({result.id} if result is not None and result.created else set())
    if deed is _claim and kind != "ready":
        assert new == set()


@pytest.mark.parametrize("kind", ["reschedule", "replace", "rerun", "ready", "window"])
async def test_a_key_that_was_taken_since_the_snapshot_is_not_taken_twice(
    ox: Oxpull, caller: Caller, snapshot_level: str, competitor: Competitor, kind: str
) -> None:
    task = task_of(ox, kind)
    await caller.begin(snapshot_level)
    await caller.look()
    first = await task.using(run_after=20).enqueue("a", 1)

    try:
        result = await ox.bind(caller.bindable).enqueue(task.using(run_after=30), "a", 2)
    except UniqueEnqueueRace:
        pass
    except TransactionRolledBack:
        await caller.rollback()
        assert list(rows(competitor)) == [first.id]
        return
    else:
        assert result.id == first.id
    await caller.order(1)
    await caller.commit()

    assert own_rows(competitor) == {1}
    assert list(rows(competitor)) == [first.id]


# Waits


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.parametrize("kind", ["reschedule", "replace"])
async def test_a_wait_for_whoever_changes_the_holder_ends(
    ox: Oxpull,
    caller: Caller,
    new_caller: Callable[[], Awaitable[Caller]],
    competitor: Competitor,
    kind: str,
) -> None:
    task = task_of(ox, kind).using(run_after=20)
    await task.enqueue("a", 1)
    await caller.begin()
    await ox.bind(caller.bindable).enqueue(task.using(run_after=30), "a", 2)

    with pytest.raises(UniqueEnqueueRace) as own:
        await task.using(run_after=40, wait=0.2).enqueue("a", 3)
    other = await new_caller()
    await other.begin()
    await other.order(7)
    with pytest.raises(UniqueEnqueueRace) as joined:
        await ox.bind(other.bindable).enqueue(task.using(run_after=40, wait=0.2), "a", 3)
    await other.commit()
    await caller.commit()

    assert (own.value.reason, own.value.retry) == ("lock_wait", "call")
    assert (joined.value.reason, joined.value.retry) == ("lock_wait", "call")
    assert own_rows(competitor) == {7}
    assert arguments(competitor) == [["a", 2 if kind == "replace" else 1]]


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.parametrize("kind", ["ready", "window"])
async def test_who_waits_for_a_hold_gets_its_task_when_it_is_committed(
    ox: Oxpull,
    caller: Caller,
    competitor: Competitor,
    kind: str,
    somebody_waits: Callable[[], Awaitable[Any]],
) -> None:
    import asyncio

    task = task_of(ox, kind)
    await caller.begin()
    first = await ox.bind(caller.bindable).enqueue(task, "a", 1)
    waiting = asyncio.ensure_future(task.enqueue("a", 2))
    await somebody_waits()
    await caller.commit()

    second = await waiting
    assert (second.id, second.created) == (first.id, False)
    assert len(rows(competitor)) == 1
