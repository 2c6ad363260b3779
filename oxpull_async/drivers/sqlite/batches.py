"""Batches: their rows, their members, and how they complete.

Whoever runs these in a transaction of our own holds the file's write lock, so
nothing has to be waited for, and a count is current.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.batches import Ending, Tally
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite import tasks as task_procedures
from oxpull_async.drivers.sqlite._rows import (
    EVERYTHING,
    NOTHING,
    batch_row,
    batch_values,
    id_array,
    instant,
    member_row,
    modifier,
    sealed_row,
    stored_instant,
    text,
)
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports import NewTask
from oxpull_async.ports_batches import (
    BatchClosed,
    BatchCount,
    BatchRow,
    Leadership,
    MemberRow,
    NewBatch,
    Scan,
    SealedBatch,
)

_SQL = load_statements(__package__, "batches.sql")
_INSERT_BATCH = _SQL["insert_batch"]
_GET_BATCH = _SQL["get_batch"]
_LIST_BATCHES = _SQL["list_batches"]
_COUNT_BATCHES = _SQL["count_batches"]
_GET_STATUS = _SQL["get_status"]
_CLAIM = _SQL["claim_batch"]
_ADD_MEMBERS = _SQL["add_members"]
_MEMBERS_AMONG = _SQL["members_among"]
_SEAL = _SQL["seal_batch"]
_COUNT_MEMBERS = _SQL["count_members"]
_TALLY = _SQL["tally"]
_FIND_HIGHEST_PENDING = _SQL["find_highest_pending"]
_READ_MEMBERS = _SQL["read_members"]
_SCAN_MEMBERS = _SQL["scan_members"]
_LIST_SEALED = _SQL["list_sealed"]
_GET_SEALED = _SQL["get_sealed"]
_FIND_PENDING = _SQL["find_pending"]
_MARK_COMPLETE = _SQL["mark_complete"]
_WRITE_ENDING = _SQL["write_ending"]
_LEAD = _SQL["lead"]
_READ_LEASE = _SQL["read_lease"]
_STAND_DOWN = _SQL["stand_down"]
_LAST_LED = _SQL["last_led"]
_FIND_PRUNABLE = _SQL["find_prunable_batches"]
_LOCK_COMPLETE = _SQL["lock_complete"]
_DELETE_MEMBERS = _SQL["delete_members"]
_DELETE_BATCH = _SQL["delete_batch"]


def create(batch: NewBatch) -> Procedure[None]:
    yield _INSERT_BATCH(**batch_values(batch))


def get(batch_id: UUID) -> Procedure[BatchRow | None]:
    result = yield _GET_BATCH(batch_id=batch_id.hex)
    return batch_row(result.rows[0]) if result.rows else None


def newest(status: str, limit: int) -> Procedure[list[BatchRow]]:
    result = yield _LIST_BATCHES(status=status, limit=limit)
    return [batch_row(row) for row in result.rows]


def count(status: str, limit: int) -> Procedure[BatchCount]:
    result = yield _COUNT_BATCHES(status=status, limit=limit)
    number, earliest = result.rows[0]
    return BatchCount(number, instant(earliest))


def claim(batch_id: UUID, wait_seconds: float) -> Procedure[BatchClosed | None]:
    """Within a transaction."""
    return (yield from _claim(batch_id))


def add_tasks(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """The bound on the wait belongs to the BEGIN, hence to the pool."""
    return (yield from add_tasks_inside(batch_id, tasks, added_at, wait_seconds))


def add_tasks_inside(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """The claim comes first, so that a closed batch leaves nothing to roll back."""
    if closed := (yield from _claim(batch_id)):
        return closed
    yield from task_procedures.insert(tasks)
    ids = id_array(task.id for task in tasks)
    result = yield _ADD_MEMBERS(batch_id=batch_id.hex, task_ids=ids, added_at=text(added_at))
    if len(result.rows) < len(tasks):
        raise UniqueViolation("a new task's id is a member already", table="oxpull_oxpullbatchmember")
    return None


def add_members(
    batch_id: UUID, task_ids: Sequence[UUID], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | frozenset[UUID]]:
    """Within a transaction; returns the ids that were members before."""
    if closed := (yield from _claim(batch_id)):
        return closed
    result = yield _ADD_MEMBERS(batch_id=batch_id.hex, task_ids=id_array(task_ids), added_at=text(added_at))
    return frozenset(task_ids) - {UUID(row[0]) for row in result.rows}


def members_among(batch_id: UUID, task_ids: Sequence[UUID]) -> Procedure[dict[UUID, datetime]]:
    result = yield _MEMBERS_AMONG(batch_id=batch_id.hex, task_ids=id_array(task_ids))
    return {UUID(row[0]): stored_instant(row[1]) for row in result.rows}


def seal(batch_id: UUID, now: datetime, wait_seconds: float | None) -> Procedure[BatchClosed | int | None]:
    """Within a transaction."""
    sealed = yield _SEAL(batch_id=batch_id.hex, now=text(now))
    if not sealed.count:
        return (yield from _closed(batch_id))
    return (yield from count_members(batch_id))


def seal_inside(batch_id: UUID, now: datetime) -> Procedure[BatchClosed | int | None]:
    """The same within a caller's transaction."""
    return (yield from seal(batch_id, now, None))


def count_members(batch_id: UUID) -> Procedure[int | None]:
    result = yield _COUNT_MEMBERS(batch_id=batch_id.hex)
    return result.rows[0][0] if result.rows else None


def tally(batch_id: UUID, width: int | None) -> Procedure[Tally]:
    found, _ = yield from tally_with_highest(batch_id, width)
    return found


def tally_with_highest(batch_id: UUID, width: int | None) -> Procedure[tuple[Tally, UUID | None]]:
    """The tally, and the highest id among pending members."""
    result = yield _TALLY(batch_id=batch_id.hex)
    highest = max((row[2] for row in result.rows if row[2] is not None), default=None)
    return Tally({row[0]: row[1] for row in result.rows}), None if highest is None else UUID(highest)


def highest_pending(batch_id: UUID) -> Procedure[UUID | None]:
    result = yield _FIND_HIGHEST_PENDING(batch_id=batch_id.hex)
    highest = result.rows[0][0]
    return None if highest is None else UUID(highest)


def members(
    batch_id: UUID, statuses: Sequence[str] | None, after: UUID | None, limit: int
) -> Procedure[list[MemberRow]]:
    result = yield _READ_MEMBERS(
        batch_id=batch_id.hex,
        any_status=statuses is None,
        statuses=json.dumps(list(statuses or ())),
        above=(after or NOTHING).hex,
        limit=limit,
    )
    return [member_row(row) for row in result.rows]


def scan(batch_id: UUID, below: UUID | None, limit: int) -> Procedure[Scan]:
    result = yield _SCAN_MEMBERS(batch_id=batch_id.hex, below=(below or EVERYTHING).hex, limit=limit)
    pending, lowest = result.rows[0]
    return Scan(None if pending is None else UUID(pending), None if lowest is None else UUID(lowest))


def sealed(after: datetime, after_id: UUID, limit: int) -> Procedure[list[SealedBatch]]:
    result = yield _LIST_SEALED(created_at=text(after), batch_id=after_id.hex, limit=limit)
    return [sealed_row(row) for row in result.rows]


def get_sealed(batch_id: UUID) -> Procedure[SealedBatch | None]:
    result = yield _GET_SEALED(batch_id=batch_id.hex)
    return sealed_row(result.rows[0]) if result.rows else None


def pending(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    result = yield _FIND_PENDING(ids=id_array(task_ids))
    return [UUID(row[0]) for row in result.rows]


def mark_complete(batch_id: UUID, now: datetime) -> Procedure[tuple[bool, int | None]]:
    """Within a transaction: whether this one completes the batch, and its total as far as it was counted."""
    result = yield _MARK_COMPLETE(batch_id=batch_id.hex, now=text(now))
    return (True, result.rows[0][0]) if result.rows else (False, None)


def write_ending(batch_id: UUID, ending: Ending, on_complete: UUID | None, on_success: UUID | None) -> Procedure[None]:
    """In the transaction of ``mark_complete``."""
    yield _WRITE_ENDING(
        batch_id=batch_id.hex,
        total_count=ending.total,
        failed_count=ending.failed,
        callback_task_id=None if on_complete is None else on_complete.hex,
        success_task_id=None if on_success is None else on_success.hex,
    )


def lead(role: str, holder: str, lease_seconds: float) -> Procedure[Leadership]:
    """In one transaction, as every write here."""
    yield _LEAD(role=role, holder=holder, lease=modifier(lease_seconds))
    result = yield _READ_LEASE(role=role)
    winner, seconds = result.rows[0]
    return Leadership(winner == holder, seconds)


def stand_down(role: str, holder: str) -> Procedure[None]:
    yield _STAND_DOWN(role=role, holder=holder)


def last_led(role_prefix: str) -> Procedure[datetime | None]:
    result = yield _LAST_LED(role=role_prefix)
    return instant(result.rows[0][0])


def find_prunable(completed_before: datetime, limit: int) -> Procedure[list[UUID]]:
    result = yield _FIND_PRUNABLE(completed_before=text(completed_before), limit=limit)
    return [UUID(row[0]) for row in result.rows]


def prune_members(batch_id: UUID, limit: int) -> Procedure[int]:
    """Within a transaction; the batch goes with its last members."""
    if not (yield _LOCK_COMPLETE(batch_id=batch_id.hex)).rows:
        return 0
    deleted = yield _DELETE_MEMBERS(batch_id=batch_id.hex, limit=limit)
    if deleted.count < limit:
        yield _DELETE_BATCH(batch_id=batch_id.hex)
    return deleted.count


def _claim(batch_id: UUID) -> Procedure[BatchClosed | None]:
    claimed = yield _CLAIM(batch_id=batch_id.hex)
    return None if claimed.count else (yield from _closed(batch_id))


def _closed(batch_id: UUID) -> Procedure[BatchClosed]:
    result = yield _GET_STATUS(batch_id=batch_id.hex)
    return BatchClosed(result.rows[0][0] if result.rows else None)
