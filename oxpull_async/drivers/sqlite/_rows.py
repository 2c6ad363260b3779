"""Values as SQLite stores them: ids as 32 hexadecimal digits, instants as text, booleans as 0 and 1."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Row
from oxpull_async.ports import Attempt, Claim, Held, NewTask, NewUnique, TaskRow
from oxpull_async.ports_batches import BatchRow, MemberRow, NewBatch, SealedBatch

NOTHING = UUID(int=0)
EVERYTHING = UUID(int=2**128 - 1)
"""Ids that come before and after all others."""

_BATCH_IDS = (0, 11, 12)
_BATCH_INSTANTS = (13, 14, 15)
_UTC = "+00:00"


def task_row(row: Row) -> TaskRow:
    """The columns of the fragment ``task_row``, in its order."""
    id_, path, args, kwargs, queue, priority, takes_context, backend, status, run_after, *rest = row
    attempts, max_attempts, return_value, errors, worker_ids, enqueued_at, *rest = rest
    started_at, last_attempted_at, finished_at, locked_by, locked_at, lease_expires_at, lease_epoch = rest
    return TaskRow(
        id=UUID(id_),
        task_path=path,
        args=args,
        kwargs=kwargs,
        queue_name=queue,
        priority=priority,
        takes_context=bool(takes_context),
        backend_name=backend,
        status=status,
        run_after=instant(run_after),
        attempts=attempts,
        max_attempts=max_attempts,
        return_value=return_value,
        errors=errors,
        worker_ids=worker_ids,
        enqueued_at=stored_instant(enqueued_at),
        started_at=instant(started_at),
        last_attempted_at=instant(last_attempted_at),
        finished_at=instant(finished_at),
        locked_by=locked_by,
        locked_at=instant(locked_at),
        lease_expires_at=instant(lease_expires_at),
        lease_epoch=lease_epoch,
    )


def held(row: Row) -> Attempt:
    """One row of ``read_holders``: key, task id, the holder's columns, all NULL where that row is gone."""
    task_id = UUID(row[1]) if row[1] is not None else None
    return Held(task_id, task_row(row[2:]) if row[2] is not None else None)


def claim_row(row: Row) -> Claim:
    """The columns that ``claim`` returns, in their order."""
    id_, path, args, kwargs, queue, priority, takes_context, backend, attempts, max_attempts, *rest = row
    errors, worker_ids, lease_epoch, enqueued_at, lease_expires_at, *rest = rest
    run_after, started_at, last_attempted_at = rest
    return Claim(
        id=UUID(id_),
        task_path=path,
        args=args,
        kwargs=kwargs,
        queue_name=queue,
        priority=priority,
        takes_context=bool(takes_context),
        backend_name=backend,
        attempts=attempts,
        max_attempts=max_attempts,
        errors=errors,
        worker_ids=worker_ids,
        lease_epoch=lease_epoch,
        enqueued_at=stored_instant(enqueued_at),
        lease_expires_at=stored_instant(lease_expires_at),
        run_after=instant(run_after),
        started_at=stored_instant(started_at),
        last_attempted_at=stored_instant(last_attempted_at),
    )


def task_values(task: NewTask) -> dict[str, Any]:
    """The parameters of one new task row."""
    return {
        "id": task.id.hex,
        "task_path": task.task_path,
        "args": task.args,
        "kwargs": task.kwargs,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "takes_context": int(task.takes_context),
        "backend_name": task.backend_name,
        "run_after": text(task.run_after),
        "max_attempts": task.max_attempts,
        "enqueued_at": text(task.enqueued_at),
    }


def lock_values(unique: NewUnique) -> dict[str, Any]:
    """The parameters of one lock."""
    task = unique.task
    return {
        "key": unique.key,
        "id": task.id.hex,
        "task_path": task.task_path,
        "queue_name": task.queue_name,
        "enqueued_at": text(task.enqueued_at),
    }


def lock_array(uniques: Sequence[NewUnique]) -> str:
    """The parameters of many locks, as one JSON array of arrays."""
    return json.dumps([list(lock_values(unique).values()) for unique in uniques])


def id_array(ids: Iterable[UUID]) -> str:
    """Many ids as one parameter."""
    return json.dumps([task_id.hex for task_id in ids])


def granted_array(pairs: Iterable[tuple[UUID, int]]) -> str:
    """Many (id, epoch) pairs as one parameter."""
    return json.dumps([[task_id.hex, lease_epoch] for task_id, lease_epoch in pairs])


def text(value: datetime | None) -> str | None:
    """An instant as Django stores it: UTC without an offset, the fraction left out where it is zero.

    SQLite compares these as text. That orders them rightly, for a text sorts before those that continue it.
    """
    return None if value is None else value.astimezone(UTC).isoformat(" ").removesuffix(_UTC)


def instant(value: str | datetime | None) -> datetime | None:
    """A stored instant, which has six digits after the point, or three, or none."""
    return None if value is None else stored_instant(value)


def stored_instant(value: str | datetime) -> datetime:
    """The same for a column that is never NULL; a caller's connection may have a converter of its own."""
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime.fromisoformat(value + _UTC)


def modifier(seconds: float) -> str:
    """A length of time as SQLite's date functions take it, to the millisecond."""
    return f"{seconds:+.3f} seconds"


def batch_row(row: Row) -> BatchRow:
    """The columns of the fragment ``batch_row``, in its order."""
    values = list(row)
    for index in _BATCH_IDS:
        values[index] = None if values[index] is None else UUID(values[index])
    for index in _BATCH_INSTANTS:
        values[index] = instant(values[index])
    return BatchRow(*values)


def sealed_row(row: Row) -> SealedBatch:
    """The columns of the fragment ``sealed_row``, in its order."""
    id_, on_complete_path, on_success_path, is_counted, created_at = row
    return SealedBatch(UUID(id_), on_complete_path, on_success_path, bool(is_counted), stored_instant(created_at))


def batch_values(batch: NewBatch) -> dict[str, Any]:
    """The parameters of one new batch."""
    return {
        "id": batch.id.hex,
        "name": batch.name,
        "on_complete_path": batch.on_complete_path,
        "on_complete_args": batch.on_complete_args,
        "on_complete_kwargs": batch.on_complete_kwargs,
        "on_success_path": batch.on_success_path,
        "on_success_args": batch.on_success_args,
        "on_success_kwargs": batch.on_success_kwargs,
        "created_at": text(batch.created_at),
    }


def member_row(row: Row) -> MemberRow:
    """A member's task id and instant beside its task row's columns, all NULL where that is gone."""
    return MemberRow(UUID(row[0]), stored_instant(row[1]), task_row(row[2:]) if row[2] is not None else None)
