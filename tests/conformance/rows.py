"""Rows and requests for the store, with defaults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async._ids import new_id
from oxpull_async.core.settlements import Settlement
from oxpull_async.ports import Claim, ClaimRequest, NewTask, NewUnique, Outcome, Store, TaskRow

PATH = "proof.tasks.work"
WORKER = "worker-1"
LEASE = 300.0
AGES_AGO = datetime(2001, 2, 3, tzinfo=UTC)

RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}


def new_task(**changes: Any) -> NewTask:
    """A task row to be inserted."""
    task = NewTask(
        id=new_id(), task_path=PATH, args="[1]", kwargs="{}", queue_name="default", priority=0,
        takes_context=False, backend_name="default", run_after=None, max_attempts=3, enqueued_at=now(),
    )  # fmt: skip
    return task._replace(**changes)


def new_unique(key: str, **changes: Any) -> NewUnique:
    """A task row to be inserted under a key, written short: `pad` makes a key of it."""
    return NewUnique(pad(key), new_task(**changes))


def pad(key: str) -> str:
    """A key of 64 characters, as all keys are, in the order of the short ones."""
    return key.ljust(64, "0")


def now() -> datetime:
    return datetime.now(UTC)


def request(**changes: Any) -> ClaimRequest:
    """A claim of up to ten rows of `PATH`, from any queue."""
    wanted = ClaimRequest(worker_id=WORKER, task_paths=[PATH], queues=None, limit=10, lease_seconds=LEASE, now=now())
    return replace(wanted, **changes)


def success(claim: Claim, value: object = None, **changes: Any) -> Outcome:
    """The claim's run returned a value."""
    outcome = Outcome(
        id=claim.id, lease_epoch=claim.lease_epoch, errors=claim.errors, run_after=None, finished_at=now(),
        settlement=Settlement.success(None if value is None else json.dumps(value)),
    )  # fmt: skip
    return replace(outcome, **changes)


def failure(claim: Claim, **changes: Any) -> Outcome:
    """The claim's run raised, and no attempt is left."""
    return success(claim, settlement=Settlement.failure(RECORD), errors=json.dumps([RECORD]), **changes)


def retry(claim: Claim, run_after: datetime, **changes: Any) -> Outcome:
    """The claim's run raised, and is to run again."""
    return success(
        claim, settlement=Settlement.retry(RECORD, 1), errors=json.dumps([RECORD]), run_after=run_after, **changes
    )


async def inserted(store: Store, *, count: int = 1, **changes: Any) -> list[NewTask]:
    """Rows that are in the store now."""
    tasks = [new_task(**changes) for _ in range(count)]
    await store.insert_tasks(tasks)
    return tasks


async def claimed(store: Store, *, count: int = 1, worker: str = WORKER, **changes: Any) -> list[Claim]:
    """Rows that are in the store now, and RUNNING for a worker."""
    tasks = await inserted(store, count=count, **changes)
    ids = {task.id for task in tasks}
    claims = await store.claim(request(worker_id=worker, limit=10_000, task_paths=[tasks[0].task_path]))
    mine = [claim for claim in claims if claim.id in ids]
    assert len(mine) == count
    return mine


async def claimed_unique(store: Store, key: str, **changes: Any) -> Claim:
    """A row that holds a key and is RUNNING."""
    unique = new_unique(key, **changes)
    await store.insert_unique([unique], wait_seconds=1)
    claims = await store.claim(request(limit=10_000))
    (mine,) = [claim for claim in claims if claim.id == unique.task.id]
    return mine


async def row(store: Store, task_id: UUID) -> TaskRow:
    """The row, which is there."""
    found = await store.get_task(task_id)
    assert found is not None
    return found


def ids(rows: Sequence[Any]) -> list[UUID]:
    return [row.id for row in rows]
