"""Batches: their rows, their members, and how they complete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from oxpull_async.core.batches import Ending, Tally
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql import tasks as task_procedures
from oxpull_async.drivers.mysql._rows import (
    EVERYTHING,
    NOTHING,
    batch_row,
    batch_values,
    hex_id,
    hex_ids,
    instant,
    member_row,
    microseconds,
    sealed_row,
    utc,
)
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT, ROLLBACK, repeated, repeated_inside
from oxpull_async.drivers.mysql.joined import reads_what_is_committed
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
_CLAIM = _SQL["claim_batch"]
_ADD_NEW_MEMBER = _SQL["add_new_member"]
_ADD_MEMBER = _SQL["add_member"]
_ADDED_MEMBERS = _SQL["added_members"]
_MEMBERS_AMONG = _SQL["members_among"]
_SEAL = _SQL["seal_batch"]
_COUNT_MEMBERS = _SQL["count_members"]
_GET_TOTAL = _SQL["get_total"]
_TALLY = _SQL["tally"]
_FIND_HIGHEST_PENDING = _SQL["find_highest_pending"]
_READ_MEMBERS = _SQL["read_members"]
_SCAN_MEMBERS = _SQL["scan_members"]
_LIST_SEALED = _SQL["list_sealed"]
_GET_SEALED = _SQL["get_sealed"]
_FIND_PENDING = _SQL["find_pending"]
_MARK_COMPLETE = _SQL["mark_complete"]
_WRITE_ENDING = _SQL["write_ending"]
_TAKE_ROLE = _SQL["take_role"]
_READ_LEASE = _SQL["read_lease"]
_INSERT_ROLE = _SQL["insert_role"]
_STAND_DOWN = _SQL["stand_down"]
_LAST_LED = _SQL["last_led"]
_FIND_PRUNABLE = _SQL["find_prunable_batches"]
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
    return BatchCount(number, utc(earliest))


def claim(batch_id: UUID, wait_seconds: float) -> Procedure[BatchClosed | None]:
    """Within a transaction of our own."""
    return (yield from repeated_inside(lambda: _claim(batch_id), wait_seconds))


def add_tasks(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """In a transaction that says BEGIN and COMMIT itself."""
    return (yield from repeated(lambda: _add_tasks(batch_id, tasks, added_at), wait_seconds or 0.0))


def _add_tasks(batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime) -> Procedure[BatchClosed | None]:
    yield BEGIN()
    closed = yield from add_tasks_inside(batch_id, tasks, added_at, None)
    yield ROLLBACK() if closed else COMMIT()
    return closed


def add_tasks_inside(
    batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | None]:
    """The claim comes first, so that a closed batch leaves nothing to roll back."""
    if closed := (yield from _claim(batch_id)):
        return closed
    yield from task_procedures.insert(tasks)
    yield _ADD_NEW_MEMBER.many(_member_values(batch_id, [task.id for task in tasks], added_at))
    return None


def add_members(
    batch_id: UUID, task_ids: Sequence[UUID], added_at: datetime, wait_seconds: float | None
) -> Procedure[BatchClosed | frozenset[UUID]]:
    """Within a transaction; returns the ids that were members before."""
    claimed = _claim(batch_id) if wait_seconds is None else repeated_inside(lambda: _claim(batch_id), wait_seconds)
    if closed := (yield from claimed):
        return closed
    yield _ADD_MEMBER.many(_member_values(batch_id, task_ids, added_at))
    result = yield _ADDED_MEMBERS(batch_id=batch_id.hex, task_ids=hex_ids(task_ids), added_at=instant(added_at))
    return frozenset(task_ids) - {UUID(row[0]) for row in result.rows}


def members_among(batch_id: UUID, task_ids: Sequence[UUID]) -> Procedure[dict[UUID, datetime]]:
    result = yield _MEMBERS_AMONG(batch_id=batch_id.hex, task_ids=hex_ids(task_ids))
    return {UUID(row[0]): row[1].replace(tzinfo=UTC) for row in result.rows}


def seal(batch_id: UUID, now: datetime, wait_seconds: float | None) -> Procedure[BatchClosed | int | None]:
    """Within a transaction of our own, which reads what is committed."""
    if closed := (yield from repeated_inside(lambda: _seal(batch_id, now), wait_seconds or 0.0)):
        return closed
    return (yield from count_members(batch_id))


def seal_inside(batch_id: UUID, now: datetime) -> Procedure[BatchClosed | int | None]:
    """In a snapshot a plain count is out of date, and one that isn't would lock every member: it's left for later."""
    if closed := (yield from _seal(batch_id, now)):
        return closed
    return (yield from count_members(batch_id)) if (yield from reads_what_is_committed()) else None


def _seal(batch_id: UUID, now: datetime) -> Procedure[BatchClosed | None]:
    if closed := (yield from _claim(batch_id)):
        return closed
    yield _SEAL(batch_id=batch_id.hex, now=instant(now))
    return None


def count_members(batch_id: UUID) -> Procedure[int | None]:
    yield _COUNT_MEMBERS(batch_id=batch_id.hex)
    result = yield _GET_TOTAL(batch_id=batch_id.hex)
    return result.rows[0][0] if result.rows else None


def tally(batch_id: UUID, width: int | None) -> Procedure[Tally]:
    found, _ = yield from tally_with_highest(batch_id, width)
    return found


def tally_with_highest(batch_id: UUID, width: int | None) -> Procedure[tuple[Tally, UUID | None]]:
    """The tally, and one of the highest ids among pending members."""
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
        statuses=tuple(statuses or ("",)),
        above=(after or NOTHING).hex,
        limit=limit,
    )
    return [member_row(row) for row in result.rows]


def scan(batch_id: UUID, below: UUID | None, limit: int) -> Procedure[Scan]:
    result = yield _SCAN_MEMBERS(batch_id=batch_id.hex, below=(below or EVERYTHING).hex, limit=limit)
    pending, lowest = result.rows[0]
    return Scan(None if pending is None else UUID(pending), None if lowest is None else UUID(lowest))


def sealed(after: datetime, after_id: UUID, limit: int) -> Procedure[list[SealedBatch]]:
    result = yield _LIST_SEALED(created_at=instant(after), batch_id=after_id.hex, limit=limit)
    return [sealed_row(row) for row in result.rows]


def get_sealed(batch_id: UUID) -> Procedure[SealedBatch | None]:
    result = yield _GET_SEALED(batch_id=batch_id.hex)
    return sealed_row(result.rows[0]) if result.rows else None


def pending(task_ids: Sequence[UUID]) -> Procedure[list[UUID]]:
    result = yield _FIND_PENDING(ids=hex_ids(task_ids))
    return [UUID(row[0]) for row in result.rows]


def mark_complete(batch_id: UUID, now: datetime) -> Procedure[tuple[bool, int | None]]:
    """Within a transaction: whether this one completes the batch, and its total as far as it was counted."""
    status = yield from _lock(batch_id)
    if status != BatchStatus.SEALED:
        return False, None
    yield _MARK_COMPLETE(batch_id=batch_id.hex, now=instant(now))
    result = yield _GET_TOTAL(batch_id=batch_id.hex)
    return True, result.rows[0][0]


def write_ending(batch_id: UUID, ending: Ending, on_complete: UUID | None, on_success: UUID | None) -> Procedure[None]:
    """In the transaction of ``mark_complete``."""
    yield _WRITE_ENDING(
        batch_id=batch_id.hex,
        total_count=ending.total,
        failed_count=ending.failed,
        callback_task_id=hex_id(on_complete),
        success_task_id=hex_id(on_success),
    )


def lead(role: str, holder: str, lease_seconds: float) -> Procedure[Leadership]:
    """Each statement is its own transaction: whoever comes first has the role, and what is read is what was decided.

    An INSERT comes only where there is no row, for it would lock another's.
    """
    ours = {"role": role, "holder": holder, "lease_microseconds": microseconds(lease_seconds)}
    yield _TAKE_ROLE(**ours)
    result = yield _READ_LEASE(role=role)
    if not result.rows:
        yield _INSERT_ROLE(**ours)
        result = yield _READ_LEASE(role=role)
    if not result.rows:  # given up at this moment
        return Leadership(False, 0.0)
    winner, left = result.rows[0]
    return Leadership(winner == holder, left / 1_000_000)


def stand_down(role: str, holder: str) -> Procedure[None]:
    yield _STAND_DOWN(role=role, holder=holder)


def last_led(role_prefix: str) -> Procedure[datetime | None]:
    result = yield _LAST_LED(role=role_prefix)
    return utc(result.rows[0][0])


def find_prunable(completed_before: datetime, limit: int) -> Procedure[list[UUID]]:
    result = yield _FIND_PRUNABLE(completed_before=instant(completed_before), limit=limit)
    return [UUID(row[0]) for row in result.rows]


def prune_members(batch_id: UUID, limit: int) -> Procedure[int]:
    """Within a transaction; the batch goes with its last members."""
    if (yield from _lock(batch_id)) != BatchStatus.COMPLETE:
        return 0
    deleted = yield _DELETE_MEMBERS(batch_id=batch_id.hex, limit=limit)
    if deleted.count < limit:
        yield _DELETE_BATCH(batch_id=batch_id.hex)
    return deleted.count


def _member_values(batch_id: UUID, task_ids: Sequence[UUID], added_at: datetime) -> list[dict[str, object]]:
    values = {"batch_id": batch_id.hex, "added_at": instant(added_at)}
    return [{**values, "task_id": task_id.hex} for task_id in task_ids]


def _claim(batch_id: UUID) -> Procedure[BatchClosed | None]:
    status = yield from _lock(batch_id)
    return None if status == BatchStatus.OPEN else BatchClosed(status)


def _lock(batch_id: UUID) -> Procedure[str | None]:
    result = yield _CLAIM(batch_id=batch_id.hex)
    return result.rows[0][0] if result.rows else None
