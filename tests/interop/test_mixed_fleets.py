"""Workers of both sides on one table: each runs what it knows, and takes the other's rows for what they are."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_project import tasks
from fleets import our_worker, their_worker
from peers import Peer

from oxpull_async import Oxpull, TaskResult, TaskStatus
from tests.conformance.rows import request as claim_request
from tests.conformance.rows import success
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.scale import rounds

pytestmark = pytest.mark.timeout(rounds(small=180, full=900))

PROJECT = "django_project.tasks"
ABANDONED = "django_ox.exceptions.TaskAbandoned"
TASKS = rounds(small=40, full=1_000)

OUR_APP = """
import asyncio
from oxpull_async import Oxpull

ox = Oxpull(lease=1)


@ox.task
async def own(number):
    return ["ours", number]


@ox.task
async def nap(seconds):
    await asyncio.sleep(seconds)
    return "ours"


async def plain(*args, **kwargs):
    return {"args": list(args), "kwargs": kwargs}


plain.__module__ = "django_project.tasks"
ox.task(plain)
"""


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


async def until(result: TaskResult, status: str, within: float = 40) -> None:
    async def there() -> None:
        assert (await result.refresh()).status == status

    await eventually(there, within)


def expire(watcher: Competitor, task_id: UUID, **columns: Any) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    watcher.set_task(task_id, locked_at=ended, lease_expires_at=ended, **columns)


async def test_each_fleet_runs_its_own(ox: Oxpull, migrated_url: str, peer: Peer, tmp_path: Path):
    """Theirs takes whatever is in its queues, whether it knows the task or not: so the queues differ."""
    own = ox.reference("our_app.own", queue_name="ours")
    with our_worker(migrated_url, tmp_path, OUR_APP), their_worker(migrated_url, "--queues", "default"):
        ours, theirs = [], []
        for number in range(TASKS):
            ours.append(await own.enqueue(number))
            theirs.append(await ox.enqueue(tasks.with_context))
        for result in (*ours, *theirs):
            await until(result, "SUCCESSFUL")

    assert [result.return_value for result in ours] == [["ours", number] for number in range(TASKS)]
    assert [result.return_value for result in theirs] == [{"attempt": 1, "id": str(result.id)} for result in theirs]
    assert {result.attempts for result in (*ours, *theirs)} == {1}
    assert not {result.worker_ids[0] for result in ours} & {result.worker_ids[0] for result in theirs}


async def test_a_row_that_both_can_run_is_run_once(ox: Oxpull, migrated_url: str, tmp_path: Path):
    results = await ox.enqueue_many(ox.reference(f"{PROJECT}.plain"), [(number,) for number in range(2 * TASKS)])

    with our_worker(migrated_url, tmp_path, OUR_APP, "--concurrency", "1"), their_worker(migrated_url):
        for result in results:
            await until(result, "SUCCESSFUL")

    assert [result.return_value["args"] for result in results] == [[number] for number in range(2 * TASKS)]
    assert {len(result.worker_ids) for result in results} == {1}


@pytest.mark.parametrize("attempts_left", [True, False])
async def test_a_killed_worker_of_theirs_is_survived_by_ours(
    ox: Oxpull, migrated_url: str, peer: Peer, watcher: Competitor, attempts_left: bool
):
    result = await ox.enqueue(ox.reference(f"{PROJECT}.slow", max_attempts=2 if attempts_left else 1), 60)
    with their_worker(migrated_url) as worker:
        await until(result, "RUNNING")
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    expire(watcher, result.id)

    reaped = await ox.reap()

    assert [*reaped.requeued, *reaped.lost] == [result.id]
    seen = await peer.tell("read", str(result.id))
    if attempts_left:
        assert (seen["status"], seen["attempts"], seen["errors"]) == ("READY", 1, [])
        assert watcher.row(result.id, "lease_epoch") == (2,)
    else:
        assert (await result.refresh()).status == TaskStatus.LOST
        assert seen["status"] == "FAILED"
        assert [name for name, _ in seen["errors"]] == ["TaskAbandoned"]


async def test_a_killed_worker_of_ours_is_survived_by_theirs(
    ox: Oxpull, migrated_url: str, peer: Peer, watcher: Competitor, tmp_path: Path
):
    lost = await ox.reference("our_app.nap", max_attempts=1).enqueue(60)
    with our_worker(migrated_url, tmp_path, OUR_APP) as worker:
        await until(lost, "RUNNING")
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    expire(watcher, lost.id)

    await peer.tell("work")

    await lost.refresh()
    assert (lost.status, lost.attempts) == (TaskStatus.LOST, 1)
    assert [error["exception_class_path"] for error in lost.errors] == [ABANDONED]
    assert watcher.row(lost.id, "lease_epoch", "locked_by") == (1, None)


async def test_a_straggler_of_ours_settles_what_theirs_took_for_lost(ox: Oxpull, peer: Peer, watcher: Competitor):
    result = await ox.reference("our_app.nap", max_attempts=1).enqueue(0)
    (claim,) = await ox.store.claim(claim_request(task_paths=["our_app.nap"]))
    expire(watcher, claim.id)
    await peer.tell("work")
    assert (await result.refresh()).status == TaskStatus.LOST

    assert await ox.store.settle([success(claim, "late")]) == [claim.id]

    assert await result.wait(timeout=1) == "late"
    assert result.errors == []


async def test_a_straggler_of_theirs_settles_what_ours_took_for_lost(
    ox: Oxpull, migrated_url: str, peer: Peer, watcher: Competitor
):
    result = await ox.enqueue(ox.reference(f"{PROJECT}.slow", max_attempts=1), 2.0)
    with their_worker(migrated_url):
        await until(result, "RUNNING")
        expire(watcher, result.id)
        assert list((await ox.reap()).lost) == [result.id]
        await until(result, "SUCCESSFUL")

    assert (result.return_value, result.errors, result.attempts) == ("theirs", [], 1)
    assert (await peer.tell("read", str(result.id)))["value"] == "theirs"


@pytest.mark.parametrize("by", ["retry", "cancel"])
async def test_an_operator_of_ours_fences_a_straggler_of_theirs(
    ox: Oxpull, migrated_url: str, watcher: Competitor, by: str
):
    result = await ox.enqueue(ox.reference(f"{PROJECT}.slow", max_attempts=1), 2.0)
    with their_worker(migrated_url, "--batch") as worker:
        await until(result, "RUNNING")
        if by == "retry":
            expire(watcher, result.id, queue_name="nobody's")
            await ox.reap()
            assert await ox.actions.retry(result.id)
            watcher.set_task(result.id, run_after=datetime.now(UTC) + timedelta(days=1))
        else:
            assert await ox.actions.cancel(result.id)
        before = await ox.store.get_task(result.id)
        await anyio.to_thread.run_sync(lambda: worker.wait(timeout=30))  # once the straggler has had its say

    assert before is not None
    assert before.status == ("READY" if by == "retry" else "DISCARDED")
    assert await ox.store.get_task(result.id) == before


async def test_an_operator_of_theirs_fences_a_straggler_of_ours(ox: Oxpull, peer: Peer, watcher: Competitor):
    result = await ox.reference("our_app.nap", max_attempts=1).enqueue(0)
    (claim,) = await ox.store.claim(claim_request(task_paths=["our_app.nap"]))
    expire(watcher, claim.id)
    assert list((await ox.reap()).lost) == [claim.id]

    assert await peer.tell("retry", str(result.id))

    assert list(await ox.store.settle([success(claim, "late")])) == []
    await result.refresh()
    assert (result.status, result.attempts, result.max_attempts) == (TaskStatus.READY, 1, 2)


async def test_rows_of_both_sides_are_pruned_by_ours(ox: Oxpull, migrated_url: str, peer: Peer, watcher: Competitor):
    ours = await ox.reference("our_app.own", unique=True).enqueue(1)
    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])
    for task_id in (ours.id, UUID(theirs)):
        watcher.set_task(task_id, status="SUCCESSFUL", finished_at=datetime.now(UTC) - timedelta(days=9))

    pruned = await ox.prune()

    assert (pruned.tasks, pruned.locks) == (2, 2)
    assert watcher.counts() == (0, 0)
