"""What is read of a batch, in our own connections or within a caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from oxpull_async.batches.models import BatchExplanation, BatchMember, BatchProgress, WaitingMember, progress_of
from oxpull_async.core.batches import SCAN_PAGE
from oxpull_async.core.statuses import BatchStatus, TaskStatus
from oxpull_async.exceptions import BatchNotFound
from oxpull_async.ports import TaskRow
from oxpull_async.ports_batches import BatchReads, BatchRow
from oxpull_async.results import ResultSource, task_result

_MEMBERS_PAGE = 500


async def read_row(reads: BatchReads, batch_id: UUID) -> BatchRow:
    """The batch's row. Raises: BatchNotFound."""
    row = await reads.get(batch_id)
    if row is None:
        raise BatchNotFound(f"there is no batch {batch_id}: it was rolled back, pruned, or is in another database")
    return row


async def read_progress(reads: BatchReads, batch_id: UUID) -> BatchProgress:
    """The counts now. Raises: BatchNotFound."""
    row = await read_row(reads, batch_id)
    return progress_of(row.total_count, await reads.tally(batch_id, width=row.total_count))


async def read_members(
    reads: BatchReads, source: ResultSource, batch_id: UUID, statuses: Collection[str] | None, after: UUID | None
) -> tuple[list[BatchMember], UUID | None]:
    """A page of members in the order of their ids, and where the next one begins: None after the last."""
    wanted = None if statuses is None else list(statuses)
    page = await reads.members(batch_id, statuses=wanted, after=after, limit=_MEMBERS_PAGE)
    if not page and after is None:
        await read_row(reads, batch_id)
    found = [
        BatchMember.model_construct(
            task_id=member.task_id,
            added_at=member.added_at.astimezone(UTC),
            task=None if member.task is None else task_result(member.task, source),
        )
        for member in page
        if wanted is None or (member.task is not None and member.task.status in wanted)
    ]
    return found, page[-1].task_id if page else None


async def explain(reads: BatchReads, batch_id: UUID, most: int, now: datetime) -> BatchExplanation:
    """Why the batch is where it is, with up to ``most`` of its pending members, the youngest first."""
    row = await read_row(reads, batch_id)
    progress = progress_of(row.total_count, await reads.tally(batch_id, width=row.total_count))
    waiting = (
        [] if row.status == BatchStatus.COMPLETE else await _waiting(reads, batch_id, min(most, progress.pending), now)
    )
    return BatchExplanation(
        status=BatchStatus(row.status), reason=_reason(row, progress), progress=progress, waiting=waiting
    )


async def _waiting(reads: BatchReads, batch_id: UUID, most: int, now: datetime) -> list[WaitingMember]:
    found: list[WaitingMember] = []
    below: UUID | None = None
    while len(found) < most:
        scan = await reads.scan(batch_id, below=below, limit=SCAN_PAGE)
        if scan.pending is not None:
            row = await reads.task(scan.pending)
            found += [] if row is None else [_waiting_member(row, now)]
        if scan.lowest is None:
            break
        below = scan.pending or scan.lowest
    return found


def _reason(row: BatchRow, progress: BatchProgress) -> str:
    if row.status == BatchStatus.COMPLETE:
        return f"all members were settled at {row.completed_at:%Y-%m-%d %H:%M:%S} UTC"
    members = f"{progress.pending} of {progress.total} members pending"
    if row.status == BatchStatus.OPEN:
        return f"it isn't sealed, so members may still be added ({members})"
    if progress.pending:
        return members
    callbacks = ", ".join(path for path in (row.on_complete_path, row.on_success_path) if path)
    who = f"a process that knows {callbacks}" if callbacks else "any reconciler"
    return f"all members are settled; {who} completes it in its next pass"


def _waiting_member(row: TaskRow, now: datetime) -> WaitingMember:
    return WaitingMember(task_id=row.id, task_path=row.task_path, status=row.status, waits_for=_waits_for(row, now))


def _waits_for(row: TaskRow, now: datetime) -> str:
    match row.status:
        case TaskStatus.RUNNING:
            until = "" if row.lease_expires_at is None else f", lease until {_shown(row.lease_expires_at)}"
            return f"attempt {row.attempts} of {row.max_attempts} runs on {row.locked_by}{until}"
        case TaskStatus.READY if row.run_after is not None and row.run_after > now:
            why = f"after attempt {row.attempts} of {row.max_attempts} failed" if row.attempts else "as it was deferred"
            return f"not before {_shown(row.run_after)}, {why}"
        case TaskStatus.READY:
            return f"a worker that knows this task, from queue {row.queue_name}"
        case TaskStatus.WAITING:
            return "other tasks of its workflow"
        case _:
            return "a status that holds the batch open until it's settled"


def _shown(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
