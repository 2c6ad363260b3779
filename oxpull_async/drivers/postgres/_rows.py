"""Values as PostgreSQL's drivers give and take them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Row
from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Attempt, Held, Inserted, NewTask, NewUnique, TaskRow, Unseen
from oxpull_async.ports_batches import BatchRow, MemberRow, NewBatch

NOTHING = UUID(int=0)
EVERYTHING = UUID(int=2**128 - 1)
"""Ids that come before and after all others."""

_CREATED_AT, *_ = _BATCH_INSTANTS = (13, 14, 15)
_ENQUEUED_AT = TaskRow._fields.index("enqueued_at")
_INSTANTS = tuple(
    TaskRow._fields.index(name)
    for name in (
        "run_after", "enqueued_at", "started_at", "last_attempted_at", "finished_at", "locked_at", "lease_expires_at",
    )
)  # fmt: skip


def task_row(row: Row) -> TaskRow:
    """The columns of the fragment ``task_row``, in its order.

    A caller's connection may have codecs of its own, for ids and for instants.
    """
    if isinstance(row[0], UUID) and isinstance(row[_ENQUEUED_AT], datetime):
        return TaskRow(*row)
    values = list(row)
    values[0] = UUID(str(row[0]))
    for index in _INSTANTS:
        values[index] = instant_of(row[index])
    return TaskRow(*values)


def held(task_id: Any, row: Row) -> Held:
    """A lock's task id beside its holder's columns, all NULL where that row is gone."""
    if task_id is not None and not isinstance(task_id, UUID):
        task_id = UUID(str(task_id))
    return Held(task_id, task_row(row) if row[0] is not None else None)


def attempt(inserted: Any, key: str | None, task_id: Any, row: Row) -> Attempt:
    """What ``insert_unique`` says of one key: inserted, or the lock's key and task id with the holder's columns."""
    if inserted:
        return Inserted()
    return Unseen() if key is None else held(task_id, row)


def task_values(task: NewTask) -> dict[str, Any]:
    """The parameters of one new task row."""
    return {
        "id": task.id,
        "task_path": task.task_path,
        "args": task.args,
        "kwargs": task.kwargs,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "takes_context": task.takes_context,
        "backend_name": task.backend_name,
        "run_after": task.run_after,
        "max_attempts": task.max_attempts,
        "enqueued_at": task.enqueued_at,
    }


def unique_values(unique: NewUnique) -> dict[str, Any]:
    """The parameters of one new task row with its key."""
    return {"key": unique.key, **task_values(unique.task)}


def task_arrays(tasks: Sequence[NewTask]) -> dict[str, list[Any]]:
    """The parameters of many new task rows: one array per column."""
    return {
        "ids": [task.id for task in tasks],
        "task_paths": [task.task_path for task in tasks],
        "args": [task.args for task in tasks],
        "kwargs": [task.kwargs for task in tasks],
        "queue_names": [task.queue_name for task in tasks],
        "priorities": [task.priority for task in tasks],
        "takes_contexts": [task.takes_context for task in tasks],
        "backend_names": [task.backend_name for task in tasks],
        "run_afters": [task.run_after for task in tasks],
        "max_attempts": [task.max_attempts for task in tasks],
        "enqueued_ats": [task.enqueued_at for task in tasks],
    }


def unique_arrays(uniques: Sequence[NewUnique]) -> dict[str, list[Any]]:
    """The parameters of many new task rows with their keys."""
    return {"keys": [unique.key for unique in uniques], **task_arrays([unique.task for unique in uniques])}


def milliseconds(seconds: float | None) -> str | None:
    """A bound as PostgreSQL's settings take it; zero would mean for ever, so it is at least 1 ms."""
    if seconds is None:
        return None
    return f"{max(1, round(seconds * 1000))}ms"


def batch_row(row: Row) -> BatchRow:
    """The columns of the fragment ``batch_row``, in its order."""
    if isinstance(row[0], UUID) and isinstance(row[_CREATED_AT], datetime):
        return BatchRow(*row)
    values = list(row)
    for index in (0, 11, 12):
        values[index] = None if values[index] is None else UUID(str(values[index]))
    for index in _BATCH_INSTANTS:
        values[index] = instant_of(values[index])
    return BatchRow(*values)


def batch_values(batch: NewBatch) -> dict[str, Any]:
    """The parameters of one new batch."""
    return {
        "id": batch.id,
        "name": batch.name,
        "on_complete_path": batch.on_complete_path,
        "on_complete_args": batch.on_complete_args,
        "on_complete_kwargs": batch.on_complete_kwargs,
        "on_success_path": batch.on_success_path,
        "on_success_args": batch.on_success_args,
        "on_success_kwargs": batch.on_success_kwargs,
        "created_at": batch.created_at,
    }


def member_row(row: Row) -> MemberRow:
    """A member's task id and instant beside its task row's columns, all NULL where that is gone."""
    added_at = instant_of(row[1])
    assert added_at is not None
    return MemberRow(uuid_of(row[0]), added_at, task_row(row[2:]) if row[2] is not None else None)


def uuid_of(value: Any) -> UUID:
    """An id as a caller's connection may give it."""
    return value if isinstance(value, UUID) else UUID(str(value))


def instant_of(value: Any) -> datetime | None:
    """An instant as a caller's connection may give it, or None."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise StoreError(f"a codec of the connection makes {value!r} of an instant, which can't be read") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
