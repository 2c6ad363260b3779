"""Batches as callers see them: create, add, seal, and how far they are."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Collection
from functools import partial
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from oxpull_async import (
    Batch,
    BatchMemberExists,
    BatchNotFound,
    BatchSealed,
    BatchStatus,
    Call,
    ConnectionLost,
    DeadlockDetected,
    EnqueueResult,
    InvalidArguments,
    InvalidTask,
    NoReconciler,
    Oxpull,
    SerializationFailure,
    StoreError,
    TaskRouter,
    TaskStatus,
)
from oxpull_async.drivers._joined.batches import JoinedSqlBatchStore
from tests.eventually import eventually
from tests.integration.batching import Tasks, Watched, counts
from tests.integration.competitor import Competitor
from tests.scale import rounds


@pytest.fixture
def tasks(ox: Oxpull) -> Tasks:
    return Tasks(ox)


@pytest.fixture
def seen(competitor: Competitor, tasks: Tasks) -> Watched:
    return Watched(competitor, tasks)


async def filled(ox: Oxpull, tasks: Tasks, count: int, **options: Any) -> tuple[Batch, list[UUID]]:
    batch = await ox.batches.create("proof", on_complete=tasks.done, on_success=tasks.cheer, **options)
    return batch, [(await batch.add(tasks.work, number)).id for number in range(count)]


# create


async def test_a_batch_is_created_open(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create(
        "nightly", on_complete=tasks.done, on_complete_args=[1], on_complete_kwargs={"x": 2}
    )

    assert batch.name == "nightly"
    assert await batch.status() is BatchStatus.OPEN
    assert seen.row(batch, "status", "total_count", "on_complete_path", "on_success_path") == (
        "OPEN", None, tasks.done.path, "",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["n" * 129, "a\0b", "\ud800", 7])
async def test_a_name_that_no_engine_could_store_is_refused(ox: Oxpull, seen: Watched, name: Any):
    with pytest.raises(InvalidArguments):
        await ox.batches.create(name)

    assert seen.count() == 0


@pytest.mark.parametrize("name", ["", "ä" * 128])
async def test_a_name_may_be_empty_or_of_128_characters(ox: Oxpull, seen: Watched, name: str):
    batch = await ox.batches.create(name)

    assert (await ox.batches.get(batch.id)).name == name


async def test_without_a_reconciler_nothing_is_created_or_sealed(ox: Oxpull, migrated_url: str, seen: Watched):
    batch = await ox.batches.create("proof")
    async with Oxpull(migrated_url, reconciler=False) as without:
        with pytest.raises(NoReconciler):
            await without.batches.create("proof")
        same = await without.batches.get(batch.id)
        with pytest.raises(NoReconciler):
            await same.seal()
        with pytest.raises(NoReconciler):
            await without.batches.reconcile()
        assert seen.count() == 1
        assert await batch.status() is BatchStatus.OPEN
        await batch.seal()
        with pytest.raises(BatchSealed):
            await same.seal()


async def test_a_reconciler_elsewhere_will_do(migrated_url: str):
    async with Oxpull(migrated_url, reconciler="external") as ox:
        async with ox.batches.create("proof") as batch:
            pass
        assert await batch.status() is BatchStatus.SEALED
        async with ox.running():
            pass
        assert await batch.status() is BatchStatus.SEALED
        assert await ox.batches.reconcile() == 1


async def test_a_callback_with_overrides_is_refused_and_they_are_named(ox: Oxpull, tasks: Tasks, seen: Watched):
    with pytest.raises(InvalidTask, match="queue_name, run_after"):
        await ox.batches.create("proof", on_complete=tasks.cheer.using(run_after=5, queue_name="q"))
    with pytest.raises(InvalidTask, match="on_success.*priority"):
        await ox.batches.create("proof", on_success=tasks.cheer.using(priority=5))

    assert seen.count() == 0


async def test_what_cannot_be_a_callback_is_refused(ox: Oxpull, tasks: Tasks, migrated_url: str, seen: Watched):
    async def plain() -> None: ...

    stray: Any = TaskRouter().task(plain)
    listed = Oxpull(migrated_url, unique_tasks=["proof.tasks.listed"])
    for callback in (tasks.single, stray, plain, re, "", 3):
        with pytest.raises(InvalidTask):
            await ox.batches.create("proof", on_complete=callback)  # type: ignore[arg-type]
    with pytest.raises(InvalidTask, match="unique"):
        await listed.batches.create("proof", on_complete="proof.tasks.listed")

    assert isinstance(re, ModuleType)
    assert seen.count() == 0


@pytest.mark.parametrize("wrong", [{"on_complete_args": "x"}, {"on_complete_kwargs": [1]}, {"on_complete_args": [{1}]}])
async def test_arguments_of_a_callback_that_cannot_be_stored_are_refused(
    ox: Oxpull, tasks: Tasks, seen: Watched, wrong: dict[str, Any]
):
    with pytest.raises(InvalidArguments):
        await ox.batches.create("proof", on_complete=tasks.done, **wrong)

    assert seen.count() == 0


async def test_arguments_that_a_callback_does_not_take_are_refused(ox: Oxpull, tasks: Tasks):
    with pytest.raises(InvalidArguments):
        await ox.batches.create("proof", on_complete=tasks.work, on_complete_args=[1, 2])


async def test_a_path_or_a_reference_will_do_and_arguments_without_a_callback_are_dropped(
    ox: Oxpull, tasks: Tasks, seen: Watched
):
    batch = await ox.batches.create(
        "proof", on_complete="elsewhere.tasks.done", on_complete_args=(1,), on_success_args=[{1}], on_success_kwargs={}
    )
    other = await ox.batches.create("proof", on_complete=ox.reference("elsewhere.tasks.done", priority=3))
    both = await ox.batches.create("proof", on_complete=tasks.done, on_success=tasks.done)

    assert seen.row(batch, "on_complete_path", "on_success_path") == ("elsewhere.tasks.done", "")
    assert [json.loads(text) if isinstance(text, str) else text for text in seen.row(
        batch, "on_complete_args", "on_success_args", "on_success_kwargs"
    )] == [[1], [], {}]  # fmt: skip
    assert seen.row(other, "on_complete_path") == ("elsewhere.tasks.done",)
    assert seen.row(both, "on_complete_path", "on_success_path") == (tasks.done.path, tasks.done.path)


async def test_arguments_in_the_place_of_the_batch_are_refused_with_who_gives_it(ox: Oxpull):
    @ox.task
    async def told(batch_id: str, title: str) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^on_success: .*told.*pass_batch gives batch_id, by name"):
        ox.batches.create("proof", on_success=told, on_success_args=["a title"], pass_batch=True)


async def test_a_callback_may_be_given_the_batch(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create(
        "proof", on_complete=tasks.done, on_complete_kwargs={"x": 1}, on_success=tasks.cheer, pass_batch=True
    )
    with pytest.raises(InvalidArguments, match="batch_id"):
        ox.batches.create("proof", on_complete=tasks.done, on_complete_kwargs={"batch_id": 1}, pass_batch=True)

    kwargs = [json.loads(text) if isinstance(text, str) else text for text in seen.row(
        batch, "on_complete_kwargs", "on_success_kwargs"
    )]  # fmt: skip
    assert kwargs == [{"x": 1, "batch_id": str(batch.id)}, {"batch_id": str(batch.id)}]


# The context manager


async def test_a_clean_exit_seals(ox: Oxpull, tasks: Tasks):
    async with ox.batches.create("proof") as batch:
        await batch.add(tasks.work)
        assert await batch.status() is BatchStatus.OPEN

    assert await batch.status() is BatchStatus.SEALED


async def test_an_exit_by_an_exception_leaves_the_batch_open_with_its_members(ox: Oxpull, tasks: Tasks):
    with pytest.raises(KeyError):
        async with ox.batches.create("proof") as batch:
            await batch.add(tasks.work)
            raise KeyError

    assert await batch.status() is BatchStatus.OPEN
    assert (await batch.progress()).total == 1


async def test_a_batch_that_was_sealed_within_the_block_is_not_sealed_again(ox: Oxpull):
    async with ox.batches.create("proof") as batch:
        assert await batch.seal() == 0


# get


async def test_a_batch_is_found_by_its_id(ox: Oxpull):
    batch = await ox.batches.create("proof")

    assert (await ox.batches.get(str(batch.id))).id == batch.id
    for wrong in (uuid4(), "zz"):
        with pytest.raises(BatchNotFound):
            await ox.batches.get(wrong)


# add


async def test_a_member_is_enqueued_as_its_task_says(ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor):
    batch = await ox.batches.create("proof")

    result = await batch.add(tasks.work.using(priority=7), 5)

    assert isinstance(result, EnqueueResult)
    assert (result.created, result.args, result.status) == (True, [5], TaskStatus.READY)
    assert competitor.row(result.id, "priority") == (7,)
    assert seen.members(batch) == {result.id}


async def test_a_member_is_told_to_hooks(ox: Oxpull, tasks: Tasks):
    batch = await ox.batches.create("proof")
    told: list[EnqueueResult] = []
    ox.on("enqueued", told.append)

    first = await batch.add(tasks.work, 1)
    more = await batch.add_many(tasks.work, [(2,), (3,)])

    assert [result.id for result in told] == [first.id, *(each.id for each in more)]


async def test_a_sealed_batch_takes_no_members_and_no_task_is_left(ox: Oxpull, tasks: Tasks, competitor: Competitor):
    batch, _ = await filled(ox, tasks, 1)
    assert await batch.seal() == 1

    with pytest.raises(BatchSealed, match="SEALED") as caught:
        await batch.add(tasks.work)
    with pytest.raises(BatchSealed):
        await batch.add(tasks.single, "a")
    with pytest.raises(BatchSealed):
        await batch.add_many(tasks.work, [(1,)])
    with pytest.raises(BatchSealed):
        await batch.seal()

    assert (caught.value.batch_id, caught.value.status) == (batch.id, "SEALED")
    assert competitor.counts() == (1, 0)


async def test_a_batch_that_is_gone_is_not_found(ox: Oxpull, tasks: Tasks, competitor: Competitor):
    batch = await ox.batches.create("proof")
    competitor.run("DELETE FROM oxpull_oxpullbatch WHERE id = ?", batch.id)

    for call in (batch.add(tasks.work), batch.add(tasks.single, "a"), batch.seal(), batch.progress(), batch.status()):
        with pytest.raises(BatchNotFound):
            await call
    with pytest.raises(BatchNotFound):
        [member async for member in batch.members()]
    assert competitor.counts() == (0, 0)


async def test_arguments_that_cannot_be_stored_leave_nothing(ox: Oxpull, tasks: Tasks, competitor: Competitor):
    batch = await ox.batches.create("proof")

    with pytest.raises(InvalidArguments):
        await batch.add(tasks.work, {1})

    assert competitor.counts() == (0, 0)


async def test_many_coroutines_add_at_once(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof")
    results: list[EnqueueResult] = []

    async with anyio.create_task_group() as group:

        async def one(number: int) -> None:
            results.append(await batch.add(tasks.work, number))

        for number in range(30):
            group.start_soon(one, number)

    assert seen.members(batch) == {result.id for result in results}
    assert len(seen.members(batch)) == 30


@pytest.mark.parametrize(("kind", "most"), [(DeadlockDetected, 5), (SerializationFailure, 10), (ConnectionLost, 2)])
@pytest.mark.parametrize("name", ["add", "seal"])
async def test_an_addition_or_a_seal_that_meets_others_is_repeated_so_often(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch,
    name: str, kind: type[StoreError], most: int,
):  # fmt: skip
    batch = await ox.batches.create("proof")
    done, calls = getattr(ox.store.batches, name), 0
    lasting = False

    async def unlucky(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if lasting or calls < most:
            raise kind("as it happens")
        return await done(*args, **kwargs)

    async def act() -> None:
        await (batch.seal() if name == "seal" else batch.add_many(tasks.work, [(1,)]))

    monkeypatch.setattr(ox.store.batches, name, unlucky)
    monkeypatch.setattr("oxpull_async._contention._PAUSE_SECONDS", 0.0)
    lasting = True
    with pytest.raises(kind):
        await act()
    assert (calls, await batch.status(), len(seen.members(batch))) == (most, BatchStatus.OPEN, 0)

    calls, lasting = 0, False
    await act()

    assert calls == most
    assert (await batch.status() is BatchStatus.SEALED) == (name == "seal")
    assert len(seen.members(batch)) == (name == "add")


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(("kind", "most"), [(DeadlockDetected, 5), (SerializationFailure, 1), (ConnectionLost, 1)])
async def test_in_a_transaction_that_surrounds_it_only_a_deadlock_is_met_again(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch, kind: type[StoreError], most: int
):
    batch = await ox.batches.create("proof")
    calls = 0

    async def unlucky(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        raise kind("as it happens")

    async with ox.transaction() as transaction:
        mine = await transaction.batches.get(batch.id)
        with monkeypatch.context() as patch:
            patch.setattr(JoinedSqlBatchStore, "add_tasks", unlucky)
            with pytest.raises(kind):
                await mine.add(tasks.work, 1)
        await mine.add(tasks.work, 2)

    assert calls == most
    assert len(seen.members(batch)) == 1


async def test_what_is_added_while_somebody_seals_is_counted_or_refused(
    ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor
):
    for round_ in range(rounds(small=3, full=50)):
        batch = await ox.batches.create(f"round {round_}")
        kept: set[UUID] = set()

        async def add(number: int, batch: Batch = batch, kept: set[UUID] = kept, round_: int = round_) -> None:
            with contextlib.suppress(BatchSealed):
                for turn in itertools.count():
                    match number % 3:
                        case 0:
                            kept.add((await batch.add(tasks.work, turn)).id)
                        case 1:
                            kept.add((await batch.add(tasks.single, f"{round_} {number} {turn}")).id)
                        case _:
                            kept |= {each.id for each in await batch.add_many(tasks.work, [(1,), (2,)])}

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(add, number)
            await eventually(partial(is_longer, kept, 20))
            total = await batch.seal()

        assert (total, seen.members(batch)) == (len(kept), kept)
    strays = competitor.rows(
        "SELECT COUNT(*) FROM django_ox_oxtask WHERE id NOT IN (SELECT task_id FROM oxpull_oxpullbatchmember)"
    )
    assert strays == [(0,)]


# Unique members


async def test_a_pending_task_joins_as_it_is(ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor):
    pending = await tasks.single.enqueue("a")
    batch, other = await ox.batches.create("proof"), await ox.batches.create("proof")

    joined = await batch.add(tasks.single.using(priority=9), "a")
    shared = await other.add(tasks.single, "a")

    assert (joined.id, joined.created, joined.priority) == (pending.id, False, 0)
    assert shared.id == pending.id
    assert seen.members(batch) == seen.members(other) == {pending.id}
    assert competitor.counts() == (1, 1)


async def test_a_task_that_is_a_member_already_is_refused_and_the_batch_stays_usable(
    ox: Oxpull, tasks: Tasks, seen: Watched
):
    batch = await ox.batches.create("proof")
    first = await batch.add(tasks.single, "a")

    with pytest.raises(BatchMemberExists) as caught:
        await batch.add(tasks.single, "a")

    assert (caught.value.batch_id, caught.value.task_id) == (batch.id, first.id)
    second = await batch.add(tasks.single, "b")
    assert seen.members(batch) == {first.id, second.id}


async def test_a_unique_task_is_added_again_once_it_is_settled(ox: Oxpull, tasks: Tasks, competitor: Competitor):
    batch = await ox.batches.create("proof")
    first = await batch.add(tasks.single, "a")
    competitor.set_task(first.id, status="FAILED")

    second = await batch.add(tasks.single, "a")

    assert second.id != first.id
    assert counts(await batch.progress()) == (2, 1, 0, 1)


async def test_concurrent_adds_of_one_unique_task_make_one_member(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof")
    results: list[object] = []

    async with anyio.create_task_group() as group:

        async def one() -> None:
            try:
                results.append((await batch.add(tasks.single, "a")).created)
            except BatchMemberExists as error:
                results.append(error.task_id)

        for _ in range(8):
            group.start_soon(one)

    (member,) = seen.members(batch)
    assert sorted(map(str, results)) == sorted(["True", *[str(member)] * 7])


# add_many


async def stream(count: int) -> AsyncIterator[tuple[int]]:
    for number in range(count):
        yield (number,)


@pytest.mark.parametrize(
    "source", [lambda: [(n,) for n in range(5)], lambda: stream(5), lambda: ((n,) for n in range(5))]
)
async def test_many_members_come_from_any_iterable(ox: Oxpull, tasks: Tasks, seen: Watched, source: Any):
    batch = await ox.batches.create("proof")

    added = await batch.add_many(tasks.work, source())

    assert (len(added), added.added, added.created) == (5, 5, 5)
    assert [each.id for each in added] == [each.id for each in added[:]]
    assert {each.id for each in added} == seen.members(batch)
    assert all(each.created and not each.already_member for each in added)


async def test_more_than_a_chunk_is_added(ox: Oxpull, tasks: Tasks):
    batch = await ox.batches.create("proof")

    added = await batch.add_many(tasks.work, stream(4500))

    assert len({each.id for each in added}) == 4500
    assert counts(await batch.progress()) == (4500, 4500, 0, 0)
    assert await batch.seal() == 4500


async def test_calls_are_read_as_they_are_written(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof")
    ahead: list[int] = []

    async def calls() -> AsyncIterator[tuple[int]]:
        for number in range(6001):
            if number % 1000 == 0:
                ahead.append(number - len(seen.members(batch)))
            yield (number,)

    added = await batch.add_many(tasks.work, calls())

    assert added.added == 6001
    assert max(ahead) <= 2000


async def test_each_call_of_many_is_reported(ox: Oxpull, tasks: Tasks, seen: Watched):
    pending = await tasks.single.enqueue("a")
    batch = await ox.batches.create("proof")
    await batch.add(tasks.single, "b")

    added = await batch.add_many(tasks.single, [("a",), ("b",), Call(("c",)), ("c",), Call((), {"name": "c"})])

    assert [(each.created, each.already_member) for each in added] == [
        (False, False), (False, True), (True, False), (False, True), (True, False),
    ]  # fmt: skip
    assert added[0].id == pending.id
    assert added[2].id == added[3].id == added[-3].id
    assert (added.added, added.created) == (3, 2)
    assert len(seen.members(batch)) == 4


async def test_a_call_that_is_refused_leaves_its_chunk_out_and_the_batch_open(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof")
    calls = [(number,) for number in range(2500)]

    with pytest.raises(InvalidArguments, match="call 2400"):
        await batch.add_many(tasks.work, [*calls[:2400], 7, *calls[2400:]])  # type: ignore[list-item]

    assert len(seen.members(batch)) == 2000
    assert await batch.status() is BatchStatus.OPEN


async def test_no_calls_add_no_members(ox: Oxpull, tasks: Tasks):
    batch = await ox.batches.create("proof")

    assert len(await batch.add_many(tasks.work, [])) == 0
    assert len(await batch.add_many(tasks.single, [])) == 0


# progress, members, explain


async def test_progress_counts_statuses_and_rows_that_are_gone(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await filled(ox, tasks, 7)
    seen.settle(ids, "SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "WAITING", "READY", None)
    before = await batch.progress()
    await batch.seal()

    after = await batch.progress()

    assert before == after
    assert counts(after) == (7, 2, 1, 1)
    assert (after.unattributed, after.finished) == (3, 5)
    with pytest.warns(DeprecationWarning, match="unattributed"):
        assert after.pruned == 3
    assert after.model_dump() == {
        "total": 7, "pending": 2, "succeeded": 1, "failed": 1, "unattributed": 3, "finished": 5,
    }  # fmt: skip


async def test_members_come_with_their_rows(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await filled(ox, tasks, 3)
    seen.settle(ids, "FAILED", None, "READY")

    everyone = {member.task_id: member async for member in batch.members()}

    assert set(everyone) == set(ids)
    assert [everyone[task_id].status for task_id in ids] == [TaskStatus.FAILED, None, TaskStatus.READY]
    assert [member.task_id async for member in batch.members(status="FAILED")] == [ids[0]]
    wanted = [TaskStatus.FAILED, TaskStatus.READY]
    assert {member.task_id async for member in batch.members(status=wanted)} == {ids[0], ids[2]}
    with pytest.raises(ValueError, match="NONSENSE"):
        [member async for member in batch.members(status="NONSENSE")]


async def test_more_members_than_a_page_come(ox: Oxpull, tasks: Tasks):
    batch = await ox.batches.create("proof")
    added = await batch.add_many(tasks.work, [(n,) for n in range(1201)])

    assert {member.task_id async for member in batch.members()} == {each.id for each in added}
    assert [member async for member in batch.members(status="LOST")] == []


async def test_it_is_explained_why_a_batch_is_open(ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor):
    batch = await ox.batches.create("proof", on_complete=tasks.done)
    ready = await batch.add(tasks.work)
    deferred = await batch.add(tasks.work.using(run_after=3600))
    running, waiting, settled = [await batch.add(tasks.work) for _ in range(3)]
    competitor.set_task(running.id, status="RUNNING", locked_by="w-1", attempts=1)
    competitor.set_task(waiting.id, status="WAITING")
    competitor.set_task(settled.id, status="SUCCESSFUL")

    found = await batch.explain()

    assert found.status is BatchStatus.OPEN
    assert "isn't sealed" in found.reason
    words = {member.task_id: member.waits_for for member in found.waiting}
    assert set(words) == {ready.id, deferred.id, running.id, waiting.id}
    assert "worker" in words[ready.id]
    assert "not before" in words[deferred.id]
    assert "attempt 1 of 3 runs on w-1" in words[running.id]
    assert "workflow" in words[waiting.id]
    assert str(running.id) in str(found)
    assert len((await batch.explain(most=2)).waiting) == 2

    await batch.seal()
    assert "4 of 5 members pending" in (await batch.explain()).reason
    for each in (ready, deferred, running, waiting):
        competitor.set_task(each.id, status="SUCCESSFUL")
    assert tasks.done.path in (await batch.explain()).reason
    await ox.batches.reconcile()
    assert (await batch.explain()).reason.startswith("all members were settled at")


def is_longer(found: Collection[UUID], length: int) -> bool:
    return len(found) > length
