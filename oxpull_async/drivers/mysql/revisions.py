"""Changes to tasks that wait, and reruns of those that run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql import joined as joined_procedures
from oxpull_async.drivers.mysql import tasks
from oxpull_async.drivers.mysql._rows import hex_ids, instant, task_row, task_values
from oxpull_async.exceptions import SerializationFailure
from oxpull_async.ports import NewTask, TaskRow
from oxpull_async.ports_keys import Rerun

_SQL = load_statements(__package__, "revisions.sql")
_LOCK_READY = _SQL["lock_ready"]
_MOVE_TASK = _SQL["move_task"]
_REPLACE_ARGUMENTS = _SQL["replace_arguments"]
_PUT_RERUN = _SQL["put_rerun"]
_FIND_RERUNS = _SQL["find_reruns"]
_LOCK_RERUNS = _SQL["lock_reruns"]
_DROP_RERUNS = _SQL["drop_reruns"]
_READ_RERUN = _SQL["read_rerun"]
_LOCK_RERUN = _SQL["lock_rerun"]
_LOCK_RERUNS_OF = _SQL["lock_reruns_of"]
_DUE_RERUNS = _SQL["due_reruns"]


def move(seen: TaskRow, run_after: datetime | None, *, joined: bool) -> Procedure[TaskRow | None]:
    """The row with its new time; None if it isn't READY any more, or was in between."""
    row = yield from _lock_ready(seen, joined)
    if row is None:
        return None
    yield _MOVE_TASK(id=seen.id.hex, run_after=instant(run_after))
    return row._replace(run_after=run_after)


def replace(seen: TaskRow, key: str, args: str, kwargs: str, *, joined: bool) -> Procedure[TaskRow | None]:
    """The row with its new arguments, and no rerun any more; None as with ``move``."""
    row = yield from _lock_ready(seen, joined)
    if row is None:
        return None
    yield _REPLACE_ARGUMENTS(id=seen.id.hex, args=args, kwargs=kwargs)
    # It is waited for: who starts it now would put its older arguments in the place of these.
    if (yield _FIND_RERUNS(keys=(key,))).rows:
        yield _DROP_RERUNS(keys=(key,))
    return row._replace(args=args, kwargs=kwargs)


def put_rerun(rerun: Rerun) -> Procedure[None]:
    """In the place of the key's earlier one."""
    yield _PUT_RERUN(key=rerun.key, holder_id=rerun.holder_id.hex, **task_values(rerun.task))


def drop_reruns(keys: Sequence[str]) -> Procedure[None]:
    """Those that there are, and that nobody else is writing or starting."""
    found = yield _FIND_RERUNS(keys=tuple(keys))
    if not found.rows:
        return
    locked = yield _LOCK_RERUNS(keys=tuple(sorted(row[0] for row in found.rows)))
    if locked.rows:
        yield _DROP_RERUNS(keys=tuple(row[0] for row in locked.rows))


def read_rerun(key: str) -> Procedure[Rerun | None]:
    """The key's rerun."""
    result = yield _READ_RERUN(key=key)
    return _rerun(result.rows[0]) if result.rows else None


def lock_rerun(key: str) -> Procedure[Rerun | None]:
    """The key's rerun, if nobody else has locked it."""
    result = yield _LOCK_RERUN(key=key)
    return _rerun(result.rows[0]) if result.rows else None


def lock_reruns_of(holder_ids: Sequence[UUID]) -> Procedure[list[Rerun]]:
    """What waits for these tasks."""
    result = yield _LOCK_RERUNS_OF(ids=hex_ids(holder_ids))
    return [_rerun(row) for row in result.rows]


def due_reruns(limit: int) -> Procedure[list[str]]:
    """The keys of reruns whose task has ended."""
    result = yield _DUE_RERUNS(limit=limit)
    return [row[0] for row in result.rows]


def _lock_ready(seen: TaskRow, joined: bool) -> Procedure[TaskRow | None]:
    if joined:
        yield from _require_fresh_view(seen)
    result = yield _LOCK_READY(id=seen.id.hex, lease_epoch=seen.lease_epoch)
    return task_row(result.rows[0]) if result.rows else None


def _require_fresh_view(seen: TaskRow) -> Procedure[None]:
    """Where a locked look at a changed row costs the transaction, look whether it's changed, first without a lock."""
    level = yield from joined_procedures.read_level()
    if level.punishes and (yield from tasks.get(seen.id)) != seen:
        raise SerializationFailure("the task that holds the key has changed since this transaction's snapshot")


def _rerun(row: Row) -> Rerun:
    key, holder_id, task_id, path, args, kwargs, queue, priority, takes_context, backend, *rest = row
    run_after, max_attempts, enqueued_at = rest
    task = NewTask(
        UUID(task_id), path, args, kwargs, queue, priority, bool(takes_context), backend,
        None if run_after is None else run_after.replace(tzinfo=UTC), max_attempts,
        enqueued_at.replace(tzinfo=UTC),
    )  # fmt: skip
    return Rerun(key, UUID(holder_id), task)
