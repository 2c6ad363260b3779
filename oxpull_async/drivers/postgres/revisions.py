"""Changes to tasks that wait, and reruns of those that run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres._rows import task_row, task_values
from oxpull_async.ports import NewTask, TaskRow
from oxpull_async.ports_keys import Rerun

_SQL = load_statements(__package__, "revisions.sql")
_MOVE_TASK = _SQL["move_task"]
_REPLACE_ARGUMENTS = _SQL["replace_arguments"]
_PUT_RERUN = _SQL["put_rerun"]
_DROP_RERUNS = _SQL["drop_reruns"]
_READ_RERUN = _SQL["read_rerun"]
_LOCK_RERUN = _SQL["lock_rerun"]
_LOCK_RERUNS_OF = _SQL["lock_reruns_of"]
_DUE_RERUNS = _SQL["due_reruns"]


def move(seen: TaskRow, run_after: datetime | None, *, joined: bool) -> Procedure[TaskRow | None]:
    """The row with its new time; None if it isn't READY any more, or was in between."""
    result = yield _MOVE_TASK(id=seen.id, lease_epoch=seen.lease_epoch, run_after=run_after)
    return task_row(result.rows[0]) if result.rows else None


def replace(seen: TaskRow, key: str, args: str, kwargs: str, *, joined: bool) -> Procedure[TaskRow | None]:
    """The row with its new arguments; None as with ``move``."""
    result = yield _REPLACE_ARGUMENTS(id=seen.id, lease_epoch=seen.lease_epoch, key=key, args=args, kwargs=kwargs)
    return task_row(result.rows[0]) if result.rows else None


def put_rerun(rerun: Rerun) -> Procedure[None]:
    """In the place of the key's earlier one."""
    yield _PUT_RERUN(key=rerun.key, holder_id=rerun.holder_id, **task_values(rerun.task))


def drop_reruns(keys: Sequence[str]) -> Procedure[None]:
    """Those that there are, and that nobody else is writing or starting."""
    yield _DROP_RERUNS(keys=sorted(keys))


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
    result = yield _LOCK_RERUNS_OF(ids=list(holder_ids))
    return [_rerun(row) for row in result.rows]


def due_reruns(limit: int) -> Procedure[list[str]]:
    """The keys of reruns whose task has ended."""
    result = yield _DUE_RERUNS(limit=limit)
    return [row[0] for row in result.rows]


def _rerun(row: Row) -> Rerun:
    return Rerun(row[0], row[1], NewTask(*row[2:]))
