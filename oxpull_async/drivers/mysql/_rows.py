"""Values as the MySQL family's drivers give and take them.

An id travels as 32 hexadecimal digits, which MariaDB's uuid and MySQL's
char(32) both accept, and comes back with or without dashes. Instants travel
without a time zone, in UTC. A tuple becomes a parenthesised list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.drivers._procedure import Row
from oxpull_async.ports import Claim, Held, NewTask, NewUnique, TaskRow
from oxpull_async.ports_batches import BatchRow, MemberRow, NewBatch, SealedBatch

NOTHING = UUID(int=0)
EVERYTHING = UUID(int=2**128 - 1)
"""Ids that come before and after all others, also in MariaDB's own order."""

_BATCH_IDS = (0, 11, 12)
_BATCH_INSTANTS = (13, 14, 15)
_INSTANT_NAMES = {
    "run_after",
    "enqueued_at",
    "started_at",
    "last_attempted_at",
    "finished_at",
    "locked_at",
    "lease_expires_at",
}
_TASK_INSTANTS = tuple(i for i, name in enumerate(TaskRow._fields) if name in _INSTANT_NAMES)
_CLAIM_INSTANTS = tuple(i for i, name in enumerate(Claim._fields) if name in _INSTANT_NAMES)
_TAKES_CONTEXT = Claim._fields.index("takes_context")  # as in a TaskRow


def task_row(row: Row) -> TaskRow:
    """The columns of the fragment ``task_row``, in its order."""
    return TaskRow(*_decoded(row, _TASK_INSTANTS))


def claim(row: Row) -> Claim:
    """The columns of the fragment ``granted``, in its order."""
    return Claim(*_decoded(row, _CLAIM_INSTANTS))


def _decoded(row: Row, instants: Sequence[int]) -> list[Any]:
    values = list(row)
    values[0] = UUID(values[0])
    values[_TAKES_CONTEXT] = bool(values[_TAKES_CONTEXT])
    for index in instants:
        moment = values[index]
        if moment is not None:
            values[index] = moment.replace(tzinfo=UTC)
    return values


def held(task_id: str | None, row: Row) -> Held:
    """A lock's task id beside its holder's columns, all NULL where that row is gone."""
    return Held(None if task_id is None else UUID(task_id), task_row(row) if row[0] is not None else None)


def task_values(task: NewTask) -> dict[str, Any]:
    """The parameters of one new task row."""
    return {
        "id": task.id.hex,
        "task_path": task.task_path,
        "args": task.args,
        "kwargs": task.kwargs,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "takes_context": task.takes_context,
        "backend_name": task.backend_name,
        "run_after": instant(task.run_after),
        "max_attempts": task.max_attempts,
        "enqueued_at": instant(task.enqueued_at),
    }


def unique_values(unique: NewUnique) -> dict[str, Any]:
    """The parameters of one new task row with its key."""
    return {"key": unique.key, **task_values(unique.task)}


def lock_values(unique: NewUnique) -> dict[str, Any]:
    """The parameters of one new lock row."""
    task = unique.task
    return {
        "key": unique.key,
        "task_id": task.id.hex,
        "task_path": task.task_path,
        "queue_name": task.queue_name,
        "created_at": instant(task.enqueued_at),
    }


def document(rows: Sequence[Any]) -> str:
    """Rows for a ``JSON_TABLE``."""
    return json.dumps(rows, default=_written)


def lock_document(locks: Iterable[Row]) -> str:
    """Locks that were read as key and task id, with or without dashes, for ``delete_locks``: in key order."""
    in_order = sorted((str(key), task_id) for key, task_id, *_ in locks)
    return document([{"key": key, "task_id": task_id and UUID(task_id).hex} for key, task_id in in_order])


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    raise TypeError(f"no place in a JSON document for {value!r}")


def hex_id(id_: UUID | None) -> str | None:
    """An id as it travels."""
    return None if id_ is None else id_.hex


def hex_ids(ids: Iterable[UUID]) -> tuple[str, ...]:
    """Ids for an ``IN``; there must be at least one."""
    return tuple(id_.hex for id_ in ids)


def instant(moment: datetime | None) -> datetime | None:
    """A moment as the drivers take it: they would drop its time zone, not convert it."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def aware(moment: Any) -> Any:
    """A moment as it comes from the drivers, or None."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def microseconds(seconds: float) -> int:
    """A duration for ``TIMESTAMPADD(MICROSECOND, …)``."""
    return round(seconds * 1_000_000)


def utc(moment: datetime | None) -> datetime | None:
    """A stored moment."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def batch_row(row: Row) -> BatchRow:
    """The columns of the fragment ``batch_row``, in its order."""
    values = list(row)
    for index in _BATCH_IDS:
        values[index] = None if values[index] is None else UUID(values[index])
    for index in _BATCH_INSTANTS:
        values[index] = utc(values[index])
    return BatchRow(*values)


def sealed_row(row: Row) -> SealedBatch:
    """The columns of the fragment ``sealed_row``, in its order."""
    id_, on_complete_path, on_success_path, is_counted, created_at = row
    created = created_at.replace(tzinfo=UTC)
    return SealedBatch(UUID(id_), on_complete_path, on_success_path, bool(is_counted), created)


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
        "created_at": instant(batch.created_at),
    }


def member_row(row: Row) -> MemberRow:
    """A member's task id and instant beside its task row's columns, all NULL where that is gone."""
    task = task_row(row[2:]) if row[2] is not None else None
    return MemberRow(UUID(row[0]), row[1].replace(tzinfo=UTC), task)
