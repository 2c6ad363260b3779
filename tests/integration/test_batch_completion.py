"""What completes a batch, what doesn't, and with which callbacks."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import Batch, BatchStatus, ConnectionLost, EnqueueResult, Oxpull, TaskContext, TaskTimeout
from oxpull_async.exceptions import DeadlockDetected, SerializationFailure, StoreError
from tests.integration.batching import Tasks, Watched, counts
from tests.integration.competitor import Competitor
from tests.scale import rounds


@pytest.fixture
def tasks(ox: Oxpull) -> Tasks:
    return Tasks(ox)


@pytest.fixture
def seen(competitor: Competitor, tasks: Tasks) -> Watched:
    return Watched(competitor, tasks)


async def sealed(ox: Oxpull, tasks: Tasks, seen: Watched, *statuses: str | None) -> tuple[Batch, list[UUID]]:
    """A sealed batch with both callbacks, whose members have these statuses; None: the row is gone."""
    batch = await ox.batches.create("proof", on_complete=tasks.done, on_success=tasks.cheer)
    ids = [(await batch.add(tasks.work, number)).id for number, _ in enumerate(statuses)]
    await batch.seal()
    seen.settle(ids, *statuses)
    return batch, ids


async def test_an_open_batch_never_completes(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof", on_complete=tasks.done)
    seen.settle([(await batch.add(tasks.work)).id], "SUCCESSFUL")

    assert await ox.batches.reconcile() == 0

    assert seen.state(batch) == ("OPEN", None, None)
    assert counts(await batch.progress()) == (1, 0, 1, 0)


async def test_an_empty_batch_completes_with_both_callbacks(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, _ = await sealed(ox, tasks, seen)

    assert await ox.batches.reconcile() == 1

    assert seen.state(batch) == ("COMPLETE", 0, 0)
    assert seen.callbacks() == ["cheer", "done"]


@pytest.mark.parametrize("width", [1, 2])
async def test_a_batch_whose_members_have_all_succeeded_completes_with_both_callbacks(
    ox: Oxpull, tasks: Tasks, seen: Watched, width: int
):
    batch, _ = await sealed(ox, tasks, seen, *["SUCCESSFUL"] * width)

    assert await ox.batches.reconcile() == 1

    assert seen.state(batch) == ("COMPLETE", width, 0)
    assert seen.callbacks() == ["cheer", "done"]
    progress = await batch.progress()
    assert (*counts(progress), progress.unattributed) == (width, 0, width, 0, 0)
    assert await ox.batches.reconcile() == 0


@pytest.mark.parametrize("status", ["READY", "RUNNING", "WAITING", "PARKED"])
async def test_a_member_of_any_status_that_is_not_settled_holds_the_batch(
    ox: Oxpull, tasks: Tasks, seen: Watched, status: str
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL", status, "SUCCESSFUL")

    assert await ox.batches.reconcile() == 0

    assert seen.state(batch) == ("SEALED", 3, None)
    assert (await batch.progress()).pending == 1


@pytest.mark.parametrize("bad", ["LOST", "DISCARDED", None])
async def test_a_member_of_unknown_outcome_withholds_on_success(
    ox: Oxpull, tasks: Tasks, seen: Watched, bad: str | None
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL", bad)

    assert await ox.batches.reconcile() == 1

    assert seen.state(batch) == ("COMPLETE", 2, 0)
    assert seen.callbacks() == ["done"]
    progress = await batch.progress()
    assert (progress.unattributed, progress.succeeded, progress.finished) == (1, 1, 2)


async def test_members_that_are_all_gone_are_unattributed(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, _ = await sealed(ox, tasks, seen, None, None)

    assert await ox.batches.reconcile() == 1

    assert (await batch.progress()).unattributed == 2
    assert seen.callbacks() == ["done"]


async def test_a_discarded_a_deleted_and_a_lost_member_do_not_hold_the_batch(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "SUCCESSFUL", "SUCCESSFUL", "READY", None, "LOST")
    await ox.actions.discard(ids[2])

    assert await ox.batches.reconcile() == 1

    progress = await batch.progress()
    assert (progress.unattributed, progress.failed) == (3, 0)
    assert seen.callbacks() == ["done"]


async def test_a_failing_member_is_counted_and_withholds_on_success(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await ox.batches.create("proof", on_complete=tasks.done, on_success=tasks.cheer)
    await batch.add_many(tasks.work, [(number,) for number in range(20)])
    await batch.add(tasks.failing)
    await batch.seal()

    await ox.run_until_idle()

    assert seen.state(batch) == ("COMPLETE", 21, 1)
    assert seen.callbacks() == ["done"]


async def test_a_retry_before_the_pass_keeps_the_batch_open(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "SUCCESSFUL", "FAILED")
    await ox.actions.retry(ids[1])

    assert await ox.batches.reconcile() == 0
    assert seen.state(batch)[0] == "SEALED"
    assert seen.callbacks() == []
    seen.settle(ids[1:], "SUCCESSFUL")

    assert await ox.batches.reconcile() == 1
    assert seen.state(batch) == ("COMPLETE", 2, 0)
    assert seen.callbacks() == ["cheer", "done"]


async def test_a_retry_after_completion_reopens_nothing(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "FAILED")
    await ox.batches.reconcile()

    assert await ox.actions.retry(ids[0])

    assert (await batch.progress()).pending == 1
    assert await ox.batches.reconcile() == 0
    assert seen.state(batch) == ("COMPLETE", 1, 1)
    assert seen.callbacks() == ["done"]


async def test_a_straggler_shows_in_the_progress_and_nowhere_else(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "LOST")
    await ox.batches.reconcile()
    seen.settle(ids, "SUCCESSFUL")

    assert counts(await batch.progress()) == (1, 0, 1, 0)
    assert seen.state(batch) == ("COMPLETE", 1, 0)
    assert seen.callbacks() == ["done"]


async def test_a_member_that_is_retried_while_its_batch_completes_undoes_that(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    batch, ids = await sealed(ox, tasks, seen, "SUCCESSFUL", "FAILED")
    complete = ox.store.batches.complete

    async def late(completion: Any) -> Any:
        await ox.actions.retry(ids[1])
        return await complete(completion)

    monkeypatch.setattr(ox.store.batches, "complete", late)
    assert await ox.batches.reconcile() == 0
    monkeypatch.undo()

    assert seen.state(batch) == ("SEALED", 2, None)
    assert seen.callbacks() == []
    assert await ox.batches.reconcile() == 0
    seen.settle(ids[1:], "SUCCESSFUL")
    assert await ox.batches.reconcile() == 1


async def test_a_batch_without_callbacks_completes(ox: Oxpull, seen: Watched):
    async with ox.batches.create("proof") as batch:
        pass

    assert await ox.batches.reconcile() == 1

    assert seen.row(batch, "status", "callback_task_id", "success_task_id") == ("COMPLETE", None, None)


async def test_a_callback_row_is_what_a_plain_enqueue_would_have_written(
    ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor
):
    told: list[EnqueueResult] = []
    ox.on("enqueued", told.append)
    async with ox.batches.create(
        "proof", on_complete=tasks.done, on_complete_args=[1, {"a": "é"}], on_complete_kwargs={"x": {"y": 1}}
    ) as batch:
        pass

    await ox.batches.reconcile()

    callback_id, completed_at = seen.row(batch, "callback_task_id", "completed_at")
    result = await ox.get_result(str(callback_id))
    assert (result.args, result.kwargs) == ([1, {"a": "é"}], {"x": {"y": 1}})
    assert (result.priority, result.queue_name, result.max_attempts, result.run_after) == (5, "q2", 3, None)
    columns = competitor.row(result.id, "status", "attempts", "backend_name")
    assert columns == ("READY", 0, "default")
    ((in_order,),) = competitor.rows(
        "SELECT COUNT(*) FROM oxpull_oxpullbatch AS batch JOIN django_ox_oxtask AS task "
        "ON task.id = batch.callback_task_id WHERE task.enqueued_at >= batch.completed_at"
    )
    assert in_order == 1
    assert [(each.id, each.args) for each in told] == [(result.id, [1, {"a": "é"}])]
    assert completed_at is not None


async def test_callbacks_run_like_any_task_and_may_be_given_the_batch(ox: Oxpull):
    calls: list[Any] = []

    @ox.task
    async def noted(word: str, batch_id: str) -> None:
        calls.append((word, batch_id))

    async with ox.batches.create("proof", on_complete=noted, on_complete_args=["x"], pass_batch=True) as batch:
        pass
    await ox.run_until_idle()

    assert calls == [("x", str(batch.id))]


async def test_a_callback_may_take_the_context(ox: Oxpull):
    calls: list[Any] = []

    @ox.task(takes_context=True)
    async def noted(context: TaskContext, word: str) -> None:
        calls.append((context.attempt, word))

    async with ox.batches.create("proof", on_complete=noted, on_complete_args=["x"]):
        pass
    await ox.run_until_idle()

    assert calls == [(1, "x")]


async def test_a_callback_does_not_wait_behind_the_backlog_of_its_members_queue(ox: Oxpull):
    ran: list[str] = []

    @ox.task
    async def work(name: str) -> None:
        ran.append(name)

    @ox.task(priority=10)
    async def urgent() -> None:
        ran.append("callback")

    async with ox.batches.create("proof", on_complete=urgent) as batch:
        await batch.add(work, "member")
    await ox.enqueue_many(work, [("backlog",)] * 50)
    await ox.actions.discard((await anext(batch.members())).task_id)
    await ox.batches.reconcile()

    await ox.run_until_idle(concurrency=1)

    assert ran == ["callback", *["backlog"] * 50]


async def test_a_batch_that_was_sealed_uncounted_is_counted(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "SUCCESSFUL", "READY")
    seen.write(batch, total_count=None)

    assert await ox.batches.reconcile() == 0
    assert seen.state(batch) == ("SEALED", 2, None)
    seen.settle(ids[1:], None)

    assert await ox.batches.reconcile() == 1
    assert seen.state(batch) == ("COMPLETE", 2, 0)
    assert seen.callbacks() == ["done"]


async def test_a_member_with_attempts_left_holds_the_batch_over_every_pass(ox: Oxpull, seen: Watched):
    attempts = 0

    @ox.task(backoff=3600, max_attempts=2)
    async def flaky() -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError

    async with ox.batches.create("proof") as batch:
        member = await batch.add(flaky)
    await ox.run_until_idle()

    for _ in range(5):
        assert await ox.batches.reconcile() == 0
    assert attempts == 1
    assert await batch.status() is BatchStatus.SEALED
    assert (await batch.progress()).pending == 1
    await ox.actions.discard(member.id)
    assert await ox.batches.reconcile() == 1


async def test_pruned_members_withhold_on_success(ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor):
    batch, ids = await sealed(ox, tasks, seen, "SUCCESSFUL", "READY")
    await ox.prune(older_than=0)
    seen.settle(ids[1:], "SUCCESSFUL")

    assert await ox.batches.reconcile() == 1

    assert seen.state(batch) == ("COMPLETE", 2, 0)
    assert seen.callbacks() == ["done"]


async def test_a_wide_batch_costs_one_row_until_its_last_member_is_settled(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    batch = await ox.batches.create("proof", on_complete=tasks.done)
    added = await batch.add_many(tasks.work, [(number,) for number in range(2500)])
    await batch.seal()
    scans: list[object] = []
    scan = ox.store.batches.scan

    async def counted(*args: Any, **kwargs: Any) -> Any:
        scans.append(args)
        return await scan(*args, **kwargs)

    monkeypatch.setattr(ox.store.batches, "scan", counted)
    assert await ox.batches.reconcile() == 0
    assert len(scans) == 1
    for _ in range(3):
        assert await ox.batches.reconcile() == 0
    assert len(scans) == 1
    await ox.actions.discard_many([each.id for each in added][100:])
    assert await ox.batches.reconcile() == 0
    assert len(scans) <= 4
    await ox.actions.discard_many([each.id for each in added])

    assert await ox.batches.reconcile() == 1
    assert seen.state(batch) == ("COMPLETE", 2500, 0)


@pytest.mark.engines("sqlite")
async def test_the_members_of_a_wide_batch_are_counted_once_to_complete_it(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    looks: list[str] = []
    for name in ("highest_pending", "complete"):
        monkeypatch.setattr(ox.store.batches, name, noted(looks, getattr(ox.store.batches, name), name))
    batch = await ox.batches.create("proof", on_complete=tasks.done)
    added = await batch.add_many(tasks.work, [(number,) for number in range(3_200)])
    await batch.seal()
    await ox.actions.discard_many([each.id for each in added][2:])

    assert await ox.batches.reconcile() == 0  # no page shows the two that are pending: the count does
    assert looks == ["complete"]
    await ox.actions.discard(added[1].id)
    assert await ox.batches.reconcile() == 0
    await ox.actions.discard(added[0].id)
    assert await ox.batches.reconcile() == 1

    assert looks == ["complete", "complete"]
    assert seen.state(batch) == ("COMPLETE", 3_200, 0)
    assert seen.callbacks() == ["done"]


async def test_a_batch_of_tens_of_thousands_is_sealed_and_completed_like_any_other(
    ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor
):
    width = rounds(small=10_000, full=50_000)
    batch = await ox.batches.create("proof", on_complete=tasks.done, on_success=tasks.cheer)
    await batch.add_many(tasks.work, ((number,) for number in range(width)))

    assert await batch.seal() == width
    assert await ox.batches.reconcile() == 0
    competitor.run("UPDATE django_ox_oxtask SET status = 'SUCCESSFUL'")
    assert await ox.batches.reconcile() == 1

    assert seen.state(batch) == ("COMPLETE", width, 0)
    assert seen.callbacks() == ["cheer", "done"]


@pytest.mark.engines("sqlite")
async def test_who_has_counted_a_wide_batch_too_early_looks_for_pending_members_alone(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    looks: list[str] = []
    for name in ("highest_pending", "complete"):
        monkeypatch.setattr(ox.store.batches, name, noted(looks, getattr(ox.store.batches, name), name))
    batch = await ox.batches.create("proof")
    added = await batch.add_many(tasks.work, [(number,) for number in range(6_600)])
    await batch.seal()
    ids = [each.id for each in added]
    await ox.actions.discard_many([*ids[1:3_300], *ids[3_301:]])
    assert await ox.batches.reconcile() == 0

    await ox.actions.discard(ids[3_300])
    assert await ox.batches.reconcile() == 0
    assert looks == ["complete", "highest_pending"]
    await ox.actions.discard(ids[0])
    assert await ox.batches.reconcile() == 1

    assert looks == ["complete", "highest_pending", "complete"]


def noted(looks: list[str], method: Any, name: str) -> Any:
    async def look(*args: Any, **kwargs: Any) -> Any:
        looks.append(name)
        return await method(*args, **kwargs)

    return look


# One batch can't stop the others


async def test_a_callback_that_has_become_unique_keeps_its_batch_sealed_until_that_is_undone(
    ox: Oxpull, tasks: Tasks, seen: Watched, caplog: pytest.LogCaptureFixture
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    async with ox.batches.create("other") as other:
        pass
    options = tasks.cheer.options
    tasks.cheer.options = tasks.single.options

    with caplog.at_level(logging.ERROR):
        assert await ox.batches.reconcile() == 1
        assert await ox.batches.reconcile() == 0

    assert await other.status() is BatchStatus.COMPLETE
    assert seen.state(batch) == ("SEALED", 1, None)
    assert seen.callbacks() == []
    assert [getattr(record, "event", "") for record in caplog.records] == ["batch_reconcile_failed"]
    (stuck,) = await ox.batches.stuck()
    assert stuck.id == batch.id
    assert "unique" in stuck.reason
    tasks.cheer.options = options
    assert await ox.batches.reconcile() == 1
    assert await ox.batches.stuck() == []
    assert seen.callbacks() == ["cheer", "done"]


async def test_a_callback_that_is_unknown_here_is_left_to_those_who_know_it(
    ox: Oxpull, tasks: Tasks, seen: Watched, migrated_url: str, caplog: pytest.LogCaptureFixture
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    waiting, _ = await sealed(ox, tasks, seen, "READY")

    async with Oxpull(migrated_url) as stranger:
        with caplog.at_level(logging.WARNING):
            assert await stranger.batches.reconcile() == 0
        (stuck,) = await stranger.batches.stuck()

    assert (stuck.id, tasks.done.path in stuck.reason) == (batch.id, True)
    assert caplog.records == []
    assert await ox.batches.stuck() == []
    assert await ox.batches.reconcile() == 1
    assert await waiting.status() is BatchStatus.SEALED


async def test_one_unknown_callback_is_enough_to_leave_both(ox: Oxpull, tasks: Tasks, seen: Watched, migrated_url: str):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    told: list[EnqueueResult] = []

    async with Oxpull(migrated_url) as half:
        half._tasks[tasks.done.path] = tasks.done
        half.on("enqueued", told.append)
        assert await half.batches.reconcile() == 0

    assert (seen.state(batch), seen.callbacks(), told) == (("SEALED", 1, None), [], [])
    assert await ox.batches.reconcile() == 1


async def test_a_queue_that_is_no_longer_served_keeps_the_batch_sealed(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url) as ox:
        tasks = Tasks(ox)
        batch, _ = await sealed(ox, tasks, Watched(competitor, tasks), "SUCCESSFUL")
    async with Oxpull(migrated_url, queues=["default"]) as narrow:
        Tasks(narrow)
        assert await narrow.batches.reconcile() == 0
        (stuck,) = await narrow.batches.stuck()

    assert (stuck.id, "q2" in stuck.reason) == (batch.id, True)


@pytest.mark.parametrize("error", [SerializationFailure("as it happens"), DeadlockDetected("as it happens")])
async def test_a_completion_that_meets_others_is_repeated(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch, error: StoreError
):
    await sealed(ox, tasks, seen, "SUCCESSFUL")
    complete, tries = ox.store.batches.complete, 0

    async def unlucky(completion: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise error
        return await complete(completion)

    monkeypatch.setattr(ox.store.batches, "complete", unlucky)

    assert await ox.batches.reconcile() == 1
    assert tries == 3


@pytest.mark.parametrize(
    ("error", "most"), [(SerializationFailure("ever"), 10), (DeadlockDetected("ever"), 5), (StoreError("ever"), 1)]
)
async def test_a_completion_that_fails_for_ever_is_told_and_left_for_the_next_pass(
    ox: Oxpull,
    tasks: Tasks,
    seen: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: StoreError,
    most: int,
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    tries = 0

    async def unlucky(completion: Any) -> Any:
        nonlocal tries
        tries += 1
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ox.store.batches, "complete", unlucky)
        patched.setattr("oxpull_async._contention._PAUSE_SECONDS", 0.0)
        with caplog.at_level(logging.ERROR):
            assert await ox.batches.reconcile() == 0

    assert tries == most
    assert [getattr(record, "event", "") for record in caplog.records] == ["batch_reconcile_failed"]
    assert "ever" in (await ox.batches.stuck())[0].reason
    assert await ox.batches.reconcile() == 1
    assert await batch.status() is BatchStatus.COMPLETE


async def test_an_unexpected_error_of_one_batch_does_not_stop_the_pass(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    first, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    second, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")
    complete = ox.store.batches.complete

    async def odd(completion: Any) -> Any:
        if completion.batch_id == first.id:
            raise ValueError("as nobody expects")
        return await complete(completion)

    monkeypatch.setattr(ox.store.batches, "complete", odd)

    assert await ox.batches.reconcile() == 1
    assert await second.status() is BatchStatus.COMPLETE


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("way", ["bare", "as a cause", "by a cancel"])
async def test_the_time_limit_of_who_makes_a_pass_is_no_failure_of_the_batch(
    ox: Oxpull,
    tasks: Tasks,
    seen: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
):
    batch, _ = await sealed(ox, tasks, seen, "SUCCESSFUL")

    async def ended(completion: Any) -> Any:
        match way:
            case "bare":
                raise TaskTimeout(1)
            case "as a cause":
                raise ConnectionLost("cut off") from TaskTimeout(1)
            case _:
                raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(ox.store.batches, "complete", ended)
        patch.setattr("oxpull_async.runtime.reconciler.retrying", lambda attempt: attempt())
        with caplog.at_level(logging.WARNING), pytest.raises((TaskTimeout, ConnectionLost, asyncio.CancelledError)):
            await ox.batches.reconcile()

    assert caplog.records == []
    assert await ox.batches.reconcile() == 1
    assert await batch.status() is BatchStatus.COMPLETE


async def test_a_completion_is_logged(ox: Oxpull, tasks: Tasks, seen: Watched, caplog: pytest.LogCaptureFixture):
    batch, _ = await sealed(ox, tasks, seen, "FAILED", "LOST")

    with caplog.at_level(logging.INFO, logger="oxpull_async"):
        await ox.batches.reconcile()

    (record,) = [record for record in caplog.records if getattr(record, "event", "") == "batch_completed"]
    fields = vars(record)
    assert (fields["batch_id"], fields["failed_count"], fields["unattributed_count"]) == (str(batch.id), 1, 1)


async def test_reconcilers_that_race_enqueue_each_callback_once(
    ox: Oxpull, tasks: Tasks, seen: Watched, migrated_url: str
):
    batches = [(await sealed(ox, tasks, seen, "SUCCESSFUL", "SUCCESSFUL"))[0] for _ in range(10)]
    completed: list[int] = []
    others = [Oxpull(migrated_url) for _ in range(4)]
    paths = {task.path: task for task in (tasks.done, tasks.cheer)}
    for other in others:
        other._tasks.update(paths)

    async with anyio.create_task_group() as group:

        async def one(other: Oxpull) -> None:
            async with other:
                completed.append(await other.batches.reconcile())

        for other in others:
            group.start_soon(one, other)

    assert sum(completed) == 10
    assert seen.callbacks() == ["cheer"] * 10 + ["done"] * 10
    for batch in batches:
        assert seen.state(batch) == ("COMPLETE", 2, 0)


# Waiting, and pruning


async def test_a_completed_batch_is_waited_for(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "READY")
    with pytest.raises(TimeoutError, match="SEALED"):
        await batch.wait(0.05)

    async with anyio.create_task_group() as group:
        found: list[Any] = []

        async def wait() -> None:
            found.append(await batch.wait(timedelta(seconds=20)))

        group.start_soon(wait)
        await ox.actions.discard(ids[0])
        await ox.batches.reconcile()

    assert counts(found[0]) == (1, 0, 0, 0)


async def test_a_watch_tells_of_changes_only_and_ends_with_the_batch(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch, ids = await sealed(ox, tasks, seen, "READY", "READY")
    watched: list[tuple[int, ...]] = []

    with anyio.fail_after(20):
        async for progress in batch.watch():
            watched.append(counts(progress))
            if len(watched) == 1:
                seen.settle(ids[:1], "SUCCESSFUL")
            elif len(watched) == 2:
                seen.settle(ids[1:], "SUCCESSFUL")
                await ox.batches.reconcile()

    assert watched == [(2, 2, 0, 0), (2, 1, 1, 0), (2, 0, 2, 0)]


async def test_those_who_watch_the_same_batch_share_its_counts(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    batch, _ = await sealed(ox, tasks, seen, "READY")
    tallies: list[object] = []
    tally = ox.store.batches.tally

    async def counted(*args: Any, **kwargs: Any) -> Any:
        tallies.append(args)
        return await tally(*args, **kwargs)

    monkeypatch.setattr(ox.store.batches, "tally", counted)
    monkeypatch.setattr("oxpull_async.batches.counting._SHORTEST_SECONDS", 60.0)
    async with anyio.create_task_group() as group:
        first = 0

        async def watch() -> None:
            nonlocal first
            async for _ in batch.watch():
                first += 1
                if first == 10:
                    group.cancel_scope.cancel()

        for _ in range(10):
            group.start_soon(watch)

    assert (first, len(tallies)) == (10, 1)


async def test_completed_batches_are_pruned_with_their_members(
    ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor
):
    old, _ = await sealed(ox, tasks, seen, "SUCCESSFUL", "FAILED")
    open_, _ = await sealed(ox, tasks, seen, "READY")
    await ox.batches.reconcile()

    assert (await ox.prune(older_than=3600)).batches == 0
    assert (await ox.prune(older_than=3600, batches_older_than=3600)).batches == 0
    pruned = await ox.prune(older_than=3600, batches_older_than=0)

    assert pruned.batches == 1
    assert seen.count() == 1
    assert seen.members(old) == set()
    assert len(seen.members(open_)) == 1
