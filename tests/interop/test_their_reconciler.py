"""The reference's reconciler is a task like any other, with rows in the shared table: who does what with them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_project import tasks
from peers import Peer, started_peer

from oxpull_async import BatchStatus, Oxpull, TaskStatus
from oxpull_async.runtime.scheduler import Scheduler
from tests.integration.competitor import Competitor

RECONCILE = "oxpull.batches.reconcile"
SCHEDULE: dict[str, dict[str, Any]] = {"oxpull-batch-reconcile": {"task": RECONCILE, "cron": "* * * * *"}}
START = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
COLUMNS = (
    "task_path", "queue_name", "priority", "backend_name", "status", "takes_context", "run_after", "attempts",
    "max_attempts", "lease_epoch",
)  # fmt: skip

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Peer]:
    """A Django process with a clock of its own."""
    with started_peer("django_project.batch_peer") as peer:
        yield peer


@pytest.fixture
def theirs(scheduler: Peer, migrated_url: str) -> Iterator[Peer]:
    scheduler.order("lead_to", migrated_url)
    scheduler.order("schedule", SCHEDULE, "UTC")
    yield scheduler
    scheduler.order("lead_to", "sqlite:///unused.db")


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


async def fired(theirs: Peer, watcher: Competitor) -> UUID:
    """The row of a tick of theirs: the first pass of a schedule only remembers where it begins."""
    assert await theirs.tell("dispatch", START.isoformat()) == 0
    assert await theirs.tell("dispatch", (START + timedelta(minutes=1)).isoformat()) == 1
    ((task_id,),) = watcher.rows("SELECT id FROM django_ox_oxtask WHERE task_path = ?", RECONCILE)
    return UUID(str(task_id))


async def test_its_rows_are_what_they_say(theirs: Peer, watcher: Competitor):
    task_id = await fired(theirs, watcher)

    row = dict(zip(COLUMNS, watcher.row(task_id, *COLUMNS), strict=True))
    assert row == {
        "task_path": RECONCILE, "queue_name": "default", "priority": 0, "backend_name": "default", "status": "READY",
        "takes_context": False, "run_after": None, "attempts": 0, "max_attempts": 3, "lease_epoch": 0,
    }  # fmt: skip


async def test_they_are_left_alone_here_while_our_own_reconciler_completes_the_batch(
    ox: Oxpull, theirs: Peer, watcher: Competitor
):
    task_id = await fired(theirs, watcher)
    before = watcher.row(task_id)

    @ox.task
    async def work() -> None: ...

    async with ox.batches.create("ours", on_complete=work) as batch:
        await batch.add(work)
    await ox.run_until_idle()

    assert await batch.status() is BatchStatus.COMPLETE
    assert watcher.row(task_id) == before
    assert [(finding.name, RECONCILE in finding.message) for finding in await ox.check()] == [("unknown_path", True)]
    await theirs.tell("work")
    result = await ox.get_result(task_id)
    assert (result.status, result.return_value, result.attempts) == (TaskStatus.SUCCESSFUL, 0, 1)


async def test_theirs_completes_what_was_added_and_sealed_here(migrated_url: str, theirs: Peer, watcher: Competitor):
    async with Oxpull(migrated_url, reconciler="external") as ox:
        async with ox.batches.create("ours", on_complete=tasks.on_complete, on_success=tasks.on_success) as batch:
            member = await batch.add(tasks.plain, 1)
        await theirs.tell("settle", str(member.id))
        task_id = await fired(theirs, watcher)
        await ox.run_until_idle()
        assert await batch.status() is BatchStatus.SEALED

        await theirs.tell("work")

        assert (await batch.wait(timeout=10)).succeeded == 1
        assert (await ox.get_result(task_id)).return_value == 1
        assert set(watcher.statuses().values()) == {"SUCCESSFUL"}


async def test_one_that_died_with_its_worker_is_freed_here_and_run_there(ox: Oxpull, theirs: Peer, watcher: Competitor):
    task_id = await fired(theirs, watcher)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    watcher.set_task(
        task_id, status="RUNNING", attempts=1, lease_epoch=1, locked_by="gone", locked_at=long_ago,
        lease_expires_at=long_ago,
    )  # fmt: skip

    assert (await ox.reap()).requeued == [task_id]

    await theirs.tell("work")
    result = await ox.get_result(task_id)
    assert (result.status, result.return_value, result.attempts) == (TaskStatus.SUCCESSFUL, 0, 2)


async def test_a_tick_that_is_fired_here_is_the_row_that_they_would_have_written(
    ox: Oxpull, theirs: Peer, watcher: Competitor
):
    task_id = await fired(theirs, watcher)
    columns = (*COLUMNS, "args", "kwargs", "errors", "worker_ids", "return_value")
    expected = watcher.row(task_id, *columns)
    now = START + timedelta(minutes=2)
    ox.schedule(ox.reference(RECONCILE), name="oxpull-batch-reconcile", cron="* * * * *")

    assert await Scheduler(ox.schedules, clock=lambda: now).dispatch() == 1
    assert await theirs.tell("dispatch", now.isoformat()) == 0

    (mine,) = watcher.statuses().keys() - {task_id}
    assert watcher.row(mine, *columns) == expected
    await theirs.tell("work")
    assert set(watcher.statuses().values()) == {"SUCCESSFUL"}
