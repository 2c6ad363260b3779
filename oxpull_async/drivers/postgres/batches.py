"""Batches: their rows, their members, and how they complete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.batches import WIDE, Ending, Tally
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres._rows import (
    EVERYTHING,
    NOTHING,
    batch_row,
    batch_values,
    member_row,
    milliseconds,
    task_arrays,
    uuid_of,
)
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
_ADD_TASKS = _SQL["add_tasks"]
_ADD_MEMBERS = _SQL["add_members"]
_MEMBERS_AMONG = _SQL["members_among"]
_SEAL = _SQL["seal_batch"]
_COUNT_MEMBERS = _SQL["count_members"]
_COUNT_UP_TO = _SQL["count_up_to"]
_TALLY = _SQL["tally"]
_TALLY_WIDE = _SQL["tally_wide"]
_FIND_HIGHEST_PENDING = _SQL["find_highest_pending"]
_READ_MEMBERS = _SQL["read_members"]
_SCAN_MEMBERS = _SQL["scan_members"]
_LIST_SEALED = _SQL["list_sealed"]
_GET_SEALED = _SQL["get_sealed"]
_FIND_PENDING = _SQL["find_pending"]
_MARK_COMPLETE = _SQL["mark_complete"]
_WRITE_ENDING = _SQL["write_ending"]
_LEAD = _SQL["lead"]
_STAND_DOWN = _SQL["stand_down"]
_LAST_LED = _SQL["last_led"]
_FIND_PRUNABLE = _SQL["find_prunable_batches"]
_LOCK_COMPLETE = _SQL["lock_complete"]
_DELETE_MEMBERS = _SQL["delete_members"]
_DELETE_BATCH = _SQL["delete_batch"]


def create(batch: NewBatch) -> Procedure[None]:
    yield _INSERT_BATCH(**batch_values(batch))


def get(batch_id: UUID) -> Procedure[BatchRow | None]:
    result = yield _GET_BATCH(batch_id=batch_id)
    return batch_row(result.rows[0]) if result.rows else None


def newest(status: str, limit: int) -> Procedure[list[BatchRow]]:
    result = yield _LIST_BATCHES(status=status, limit=limit)
    return [batch_row(row) for row in result.rows]


def count(status: str, limit: int) -> Procedure[BatchCount]:
    result = yield _COUNT_BATCHES(status=status, limit=limit)
    number, earliest = result.rows[0]
    return BatchCount(number, earliest)


def claim(batch_id: UUID, wait_seconds: float) -> Procedure[BatchClosed | None]:
    """Within a transaction whose waits are bounded already."""
    claimed = yield _CLAIM(batch_id=batch_id)
    return None if claimed.rows else (yield from _closed(batch_id))


def add_tasks(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """Atomic on its own: one statement, however many rows."""
    return (yield from add_tasks_inside(batch_id, tasks, added_at, wait_seconds))


def add_tasks_inside(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """The same within a transaction that surrounds it."""
    claimed = yield _ADD_TASKS(
        **task_arrays(tasks), batch_id=batch_id, added_at=added_at, lock_timeout=milliseconds(wait_seconds)
    )
    return None if claimed.rows else (yield from _closed(batch_id))


def add_members(
    batch_id: UUID, task_ids: Sequence[UUID], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | frozenset[UUID]]:
    """Within a transaction whose waits are bounded already; returns the ids that were members before."""
    result = yield _ADD_MEMBERS(batch_id=batch_id, task_ids=list(task_ids), added_at=added_at)
    if not result.rows[0][0]:
        return (yield from _closed(batch_id))
    return frozenset(task_ids) - {uuid_of(row[1]) for row in result.rows if row[1] is not None}


def members_among(batch_id: UUID, task_ids: Sequence[UUID]) -> Procedure[dict[UUID, datetime]]:
    result = yield _MEMBERS_AMONG(batch_id=batch_id, task_ids=list(task_ids))
    return {row[0]: row[1] for row in result.rows}


def seal(batch_id: UUID, now: datetime, wait_seconds: float | None) -> Procedure[BatchClosed | int | None]:
    """Within a transaction; at a snapshot level the update fails where the count would not be current."""
    sealed = yield _SEAL(batch_id=batch_id, now=now, lock_timeout=milliseconds(wait_seconds))
    if not sealed.rows:
        return (yield from _closed(batch_id))
    return (yield from count_members(batch_id))


def seal_inside(batch_id: UUID, now: datetime) -> Procedure[BatchClosed | int | None]:
    """The same within a caller's transaction."""
    return (yield from seal(batch_id, now, None))


def count_members(batch_id: UUID) -> Procedure[int | None]:
    result = yield _COUNT_MEMBERS(batch_id=batch_id)
    return result.rows[0][0] if result.rows else None


def tally(batch_id: UUID, width: int | None) -> Procedure[Tally]:
    if width is None:
        counted = yield _COUNT_UP_TO(batch_id=batch_id, limit=WIDE)
        width = counted.rows[0][0]
    statement = _TALLY_WIDE if width >= WIDE else _TALLY
    result = yield statement(batch_id=batch_id)
    return Tally({row[0]: row[1] for row in result.rows})


def tally_with_highest(batch_id: UUID, width: int | None) -> Procedure[tuple[Tally, UUID | None]]:
    """The tally, and the highest id among pending members."""
    if width is not None and width >= WIDE:
        return (yield from _wide_tally_with_highest(batch_id, width))
    result = yield _TALLY(batch_id=batch_id)
    highest = max((row[2] for row in result.rows if row[2] is not None), default=None)
    return Tally({row[0]: row[1] for row in result.rows}), None if highest is None else UUID(highest)


def _wide_tally_with_highest(batch_id: UUID, width: int) -> Procedure[tuple[Tally, UUID | None]]:
    """Each statement has a view of its own: a pending member may have settled by the second."""
    while True:
        found = yield from tally(batch_id, width)
        highest = (yield from highest_pending(batch_id)) if found.pending else None
        if highest is not None or not found.pending:
            return found, highest


def highest_pending(batch_id: UUID) -> Procedure[UUID | None]:
    result = yield _FIND_HIGHEST_PENDING(batch_id=batch_id)
    highest = result.rows[0][0]
    return None if highest is None else UUID(highest)


def members(
    batch_id: UUID, statuses: Sequence[str] | None, after: UUID | None, limit: int
) -> Procedure[list[MemberRow]]:
    result = yield _READ_MEMBERS(
        batch_id=batch_id,
        any_status=statuses is None,
        statuses=list(statuses or ()),
        above=after or NOTHING,
        limit=limit,
    )
    return [member_row(row) for row in result.rows]


def scan(batch_id: UUID, below: UUID | None, limit: int) -> Procedure[Scan]:
    result = yield _SCAN_MEMBERS(batch_id=batch_id, below=below or EVERYTHING, limit=limit)
    pending, lowest = result.rows[0]
    return Scan(None if pending is None else uuid_of(pending), None if lowest is None else uuid_of(lowest))


def sealed(after: datetime, after_id: UUID, limit: int) -> Procedure[list[SealedBatch]]:
    result = yield _LIST_SEALED(created_at=after, batch_id=after_id, limit=limit)
    return [SealedBatch(*row) for row in result.rows]


def get_sealed(batch_id: UUID) -> Procedure[SealedBatch | None]:
    result = yield _GET_SEALED(batch_id=batch_id)
    return SealedBatch(*result.rows[0]) if result.rows else None


def pending(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    result = yield _FIND_PENDING(ids=list(task_ids))
    return [row[0] for row in result.rows]


def mark_complete(batch_id: UUID, now: datetime) -> Procedure[tuple[bool, int | None]]:
    """Within a transaction: whether this one completes the batch, and its total as far as it was counted."""
    result = yield _MARK_COMPLETE(batch_id=batch_id, now=now)
    return (True, result.rows[0][0]) if result.rows else (False, None)


def write_ending(batch_id: UUID, ending: Ending, on_complete: UUID | None, on_success: UUID | None) -> Procedure[None]:
    """In the transaction of ``mark_complete``."""
    yield _WRITE_ENDING(
        batch_id=batch_id,
        total_count=ending.total,
        failed_count=ending.failed,
        callback_task_id=on_complete,
        success_task_id=on_success,
    )


def lead(role: str, holder: str, lease_seconds: float) -> Procedure[Leadership]:
    """Atomic on its own."""
    result = yield _LEAD(role=role, holder=holder, lease_seconds=lease_seconds)
    is_ours, seconds = result.rows[0]
    return Leadership(bool(is_ours), lease_seconds if is_ours or seconds is None else seconds)


def stand_down(role: str, holder: str) -> Procedure[None]:
    yield _STAND_DOWN(role=role, holder=holder)


def last_led(role_prefix: str) -> Procedure[datetime | None]:
    result = yield _LAST_LED(role=role_prefix)
    instant: datetime | None = result.rows[0][0]
    return instant


def find_prunable(completed_before: datetime, limit: int) -> Procedure[list[UUID]]:
    result = yield _FIND_PRUNABLE(completed_before=completed_before, limit=limit)
    return [row[0] for row in result.rows]


def prune_members(batch_id: UUID, limit: int) -> Procedure[int]:
    """Within a transaction; the batch goes with its last members."""
    if not (yield _LOCK_COMPLETE(batch_id=batch_id)).rows:
        return 0
    deleted = yield _DELETE_MEMBERS(batch_id=batch_id, limit=limit)
    if deleted.count < limit:
        yield _DELETE_BATCH(batch_id=batch_id)
    return deleted.count


def _closed(batch_id: UUID) -> Procedure[BatchClosed]:
    result = yield _GET_STATUS(batch_id=batch_id)
    return BatchClosed(result.rows[0][0] if result.rows else None)
