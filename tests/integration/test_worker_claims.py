"""What a worker takes, in which order, and under what lease."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import Oxpull, TaskStatus, Worker
from oxpull_async.drivers._store import SqlLeaseKeeper
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage, spied
from tests.log_lines import events


async def test_a_claimed_row_carries_its_lease(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    worker = Worker(ox)
    async with ox.running(worker=worker):
        result = await hold.enqueue()
        await stage.reached()
        row = await ox.store.get_task(result.id)
        name = worker.id
        stage.open()
        await result.wait(timeout=10)

    assert row is not None
    assert (row.status, row.attempts, row.lease_epoch) == ("RUNNING", 1, 1)
    assert row.locked_by == name
    assert row.worker_ids == f'["{name}"]'
    assert row.locked_at is not None
    assert row.started_at == row.last_attempted_at == row.locked_at
    assert row.lease_expires_at == row.locked_at + timedelta(seconds=300)


async def test_rows_run_by_priority_and_then_by_age(ox: Oxpull):
    ran: list[str] = []

    @ox.task
    async def note(name: str) -> None:
        ran.append(name)

    for name, priority in [("zero", 0), ("first five", 5), ("below", -5), ("second five", 5)]:
        await note.using(priority=priority).enqueue(name)

    await ox.run_until_idle(concurrency=1)

    assert ran == ["first five", "second five", "zero", "below"]


async def test_a_worker_with_queues_takes_from_them_alone(ox: Oxpull):
    ran: list[str] = []

    @ox.task
    async def note(queue: str) -> None:
        ran.append(queue)

    for queue in ("a", "b", "a"):
        await note.using(queue_name=queue).enqueue(queue)

    await Worker(ox, queues=["a"]).run(until_idle=True)
    assert ran == ["a", "a"]

    await Worker(ox).run(until_idle=True)
    assert ran == ["a", "a", "b"]


async def test_a_row_of_another_backend_is_taken_too(ox: Oxpull, migrated_url: str):
    @ox.task
    async def answer() -> int:
        return 42

    async with Oxpull(migrated_url, backend_name="other") as other:
        result = await other.reference(answer.path).enqueue()
        await ox.run_until_idle()
        assert await result.wait(timeout=10) == 42


async def test_a_row_whose_task_is_declared_elsewhere_is_left_alone(ox: Oxpull):
    @ox.task
    async def here(number: int) -> int:
        return number

    elsewhere = await ox.reference("elsewhere.tasks.gone", priority=10).enqueue()
    await here.enqueue_many([(number,) for number in range(10)])

    assert await ox.run_until_idle() == 10

    await elsewhere.refresh()
    assert (elsewhere.status, elsewhere.attempts, elsewhere.errors) == (TaskStatus.READY, 0, [])


async def test_a_process_that_declares_no_task_claims_nothing_and_says_so(ox: Oxpull, caplog: pytest.LogCaptureFixture):
    await ox.reference("elsewhere.tasks.task").enqueue()

    assert await ox.run_until_idle() == 0
    assert "worker_has_no_tasks" in events(caplog)


async def test_a_deferred_row_stays_and_a_due_one_runs(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    later = await task.using(run_after=60).enqueue()
    due = await task.using(run_after=timedelta(0)).enqueue()

    assert await ox.run_until_idle() == 1

    assert (await later.refresh()).status == TaskStatus.READY
    assert (await due.refresh()).status == TaskStatus.SUCCESSFUL


async def test_an_enqueue_in_the_same_process_wakes_an_idle_worker(ox: Oxpull):
    @ox.task
    async def task() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=3600)):
        for _ in range(3):
            result = await task.enqueue()
            assert await result.wait(timeout=10) == "done"


async def test_a_row_that_no_hint_told_of_is_found_by_polling(ox: Oxpull, migrated_url: str):
    @ox.task
    async def task() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, poll_interval=0.05)), Oxpull(migrated_url) as other:
        result = await other.reference(task.path).enqueue()
        assert await result.wait(timeout=10) == "done"


async def test_no_more_run_at_once_than_the_concurrency(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    results = await hold.enqueue_many([()] * 5)
    async with ox.running(worker=Worker(ox, concurrency=2, poll_interval=0.05)):
        await eventually(lambda: stage.arrivals == 2)
        statuses = Counter([(await result.refresh()).status for result in results])
        stage.open()
        for result in results:
            await result.wait(timeout=10)

    assert statuses == {TaskStatus.RUNNING: 2, TaskStatus.READY: 3}


async def test_workers_side_by_side_run_each_row_once(ox: Oxpull, migrated_url: str):
    ran: Counter[int] = Counter()

    async with Oxpull(migrated_url) as other:

        @ox.task
        async def count(number: int) -> None:
            ran[number] += 1

        assert count.function is not None
        other.task(count.function)
        await count.enqueue_many([(number,) for number in range(200)])
        async with anyio.create_task_group() as group:
            for side in (ox, other):
                group.start_soon(side.run_until_idle)

    assert ran == Counter(range(200))


async def test_a_run_of_max_tasks_ends_after_so_many_claims(ox: Oxpull):
    @ox.task(backoff=0, max_attempts=5)
    async def failing() -> None:
        raise ValueError

    result = await failing.enqueue()

    assert await Worker(ox, concurrency=1).run(max_tasks=2) == 2

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.READY, 2)


async def test_a_lease_is_renewed_while_its_task_runs(ox: Oxpull):
    stage = Stage()

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, lease=1)):
        result = await hold.enqueue()
        await stage.reached()
        before = await lease_of(ox, result.id)

        async def renewed_twice() -> None:
            assert (await lease_of(ox, result.id))[0] > before[0] + timedelta(seconds=0.5)

        await eventually(renewed_twice)
        after = await lease_of(ox, result.id)
        stage.open()
        await result.wait(timeout=10)

    assert after[1] > before[1]
    assert after[2:] == before[2:] == (1, 1)
    assert stage.arrivals == 1


async def lease_of(ox: Oxpull, task_id: UUID) -> tuple[datetime, datetime, int, int]:
    row = await ox.store.get_task(task_id)
    assert row is not None
    assert row.lease_expires_at is not None
    assert row.locked_at is not None
    return row.lease_expires_at, row.locked_at, row.lease_epoch, row.attempts


async def test_a_task_whose_lease_is_lost_is_cancelled_and_tells_nobody(
    ox: Oxpull, competitor: Competitor, caplog: pytest.LogCaptureFixture
):
    stage = Stage()
    finished: list[object] = []
    ox.on("finished", finished.append)

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, lease=1, queues=["mine"])):
        result = await hold.using(queue_name="mine").enqueue()
        await stage.reached()
        competitor.set_task(
            result.id, status="READY", lease_epoch=2, queue_name="others", locked_by=None, locked_at=None
        )
        await eventually(lambda: stage.cancelled == 1)
        await eventually(lambda: "task_lease_lost" in events(caplog))

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.lease_epoch, row.attempts, row.errors) == ("READY", 2, 1, "[]")
    assert finished == []


async def test_a_row_lost_at_our_epoch_is_still_settled_by_its_straggler(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    stage = Stage()
    renewals = spied(monkeypatch, SqlLeaseKeeper, "renew")
    finished: list[TaskStatus] = []
    ox.on("finished", lambda result: finished.append(result.status))

    @ox.task(max_attempts=1)
    async def hold() -> str:
        await stage.hold()
        return "late"

    async with ox.running(worker=Worker(ox, lease=1)):
        result = await hold.enqueue()
        await stage.reached()
        abandoned = '[{"exception_class_path": "django_ox.exceptions.TaskAbandoned", "traceback": "gone"}]'
        competitor.set_task(result.id, status="LOST", locked_by=None, errors=abandoned)
        seen = len(renewals)
        await eventually(lambda: len(renewals) >= seen + 2)
        stage.open()
        await eventually(lambda: finished == [TaskStatus.SUCCESSFUL])

    await result.refresh()
    assert (result.status, result.return_value, result.errors) == (TaskStatus.SUCCESSFUL, "late", [])
    assert stage.cancelled == 0


async def test_a_row_whose_lease_ran_out_before_it_could_begin_is_left_alone(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    ran: list[int] = []

    @ox.task
    async def note() -> None:
        ran.append(1)

    result = await note.enqueue()
    real, ahead = time.monotonic, [0.0]
    monkeypatch.setattr("oxpull_async.runtime.executor.time.monotonic", lambda: real() + ahead[0])
    original = ox.store.claim

    async def claim_and_stand_still(request: Any) -> Any:
        claims = await original(request)
        ahead[0] = 600.0 if claims else 0.0
        return claims

    monkeypatch.setattr(ox.store, "claim", claim_and_stand_still)
    await ox.run_until_idle()

    await result.refresh()
    assert (ran, result.status, result.attempts) == ([], TaskStatus.RUNNING, 1)
    assert "task_lease_lost" in events(caplog)  # the leap of the clock may cost other services a turn


async def test_rows_at_hand_that_have_not_begun_go_back_at_the_stop_with_their_attempts(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch
):
    stage = Stage()
    monkeypatch.setattr("oxpull_async.runtime.pace.WINDOW_SECONDS", 3600)

    @ox.task
    async def quick() -> None: ...

    @ox.task
    async def hold() -> None:
        await stage.hold()

    worker = Worker(ox, concurrency=1, poll_interval=0.05)
    async with ox.running(worker=worker):
        for result in await quick.enqueue_many([()] * 20):
            await result.wait(timeout=10)
        held = await hold.enqueue_many([()] * 5)
        await stage.reached()

        async def at_hand() -> None:
            statuses = [(await result.refresh()).status for result in held]
            assert statuses == [TaskStatus.RUNNING] * 5

        await eventually(at_hand)
        worker.stop()

        async def handed_back() -> None:
            statuses = Counter([(await result.refresh()).status for result in held])
            assert statuses == {TaskStatus.RUNNING: 1, TaskStatus.READY: 4}

        await eventually(handed_back)
        stage.open()

    states = Counter([(result.status, result.attempts) for result in [await result.refresh() for result in held]])
    assert states == {(TaskStatus.SUCCESSFUL, 1): 1, (TaskStatus.READY, 0): 4}


async def test_without_prefetch_no_row_is_taken_that_cannot_begin(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    stage = Stage()
    monkeypatch.setattr("oxpull_async.runtime.pace.WINDOW_SECONDS", 3600)

    @ox.task
    async def quick() -> None: ...

    @ox.task
    async def hold() -> None:
        await stage.hold()

    async with ox.running(worker=Worker(ox, concurrency=1, prefetch=0, poll_interval=0.05)):
        for result in await quick.enqueue_many([()] * 20):
            await result.wait(timeout=10)
        held = await hold.enqueue_many([()] * 3)
        await stage.reached()
        await ox.store.get_tasks([])
        statuses = Counter([(await result.refresh()).status for result in held])
        stage.open()
        for result in held:
            await result.wait(timeout=10)

    assert statuses == {TaskStatus.RUNNING: 1, TaskStatus.READY: 2}


async def test_rows_of_many_tasks_run_by_priority_and_then_by_age(ox: Oxpull):
    ran: list[str] = []

    @ox.task
    async def one(name: str) -> None:
        ran.append(name)

    @ox.task
    async def other(name: str) -> None:
        ran.append(name)

    for number, task in enumerate([one, other] * 5):
        await task.using(priority=number % 3).enqueue(f"{number % 3}-{number}")

    await ox.run_until_idle(concurrency=1)

    assert ran == sorted(ran, key=lambda name: (-int(name[0]), int(name[2:])))


async def test_no_queue_of_a_worker_waits_for_what_came_after_it(ox: Oxpull):
    ran: list[int] = []

    @ox.task
    async def task(number: int) -> None:
        ran.append(number)

    queues = ["busy", "busy", "quiet", "busy", "quiet", "busy"]
    for number, queue in enumerate(queues):
        await task.using(queue_name=queue).enqueue(number)
    worker = Worker(ox, queues=["busy", "quiet"], concurrency=1, prefetch=0)
    await worker.run(until_idle=True)

    assert ran == list(range(len(queues)))
