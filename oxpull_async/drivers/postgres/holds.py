"""Holds: keys with terms of their own, in a table that no other program prunes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room_keys import Stale, View
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres._rows import held, instant_of, milliseconds, task_row
from oxpull_async.ports import Held, NewUnique, TaskRow
from oxpull_async.ports_keys import KeyRow

T = TypeVar("T")

_SQL = load_statements(__package__, "holds.sql")
_INSERT_HOLDS = _SQL["insert_holds"]
_READ_HOLDS = _SQL["read_holds"]
_SWAP_HOLDS = _SQL["swap_holds"]
_FIND_STALE_HOLDS = _SQL["find_stale_holds"]
_DELETE_HOLDS = _SQL["delete_holds"]
_READ_KEY_OF_HOLD = _SQL["read_key_of_hold"]
_READ_KEY_OF_LOCK = _SQL["read_key_of_lock"]
_RELEASE_HOLD = _SQL["release_hold"]
_RELEASE_LOCK = _SQL["release_lock"]
_UNIQUE_SQL = load_statements(__package__, "unique.sql")
_LOCK_HOLDERS = _UNIQUE_SQL["lock_holders"]
_SET_LOCK_TIMEOUT = _UNIQUE_SQL["set_lock_timeout"]
_ISOLATION_LEVEL = _UNIQUE_SQL["isolation_level"]
_LOCK_SETTLED_HOLDERS = load_statements(__package__, "maintenance.sql")["lock_settled_holders"]


def view() -> Procedure[View]:
    """At a snapshot level a row that others have changed can't be locked (40001)."""
    result = yield _ISOLATION_LEVEL()
    is_snapshot = result.rows[0][0] != "read committed"
    return View(is_snapshot, changed_rows_lockable=False, punishes=False)


def insert_free(
    uniques: Sequence[NewUnique], terms: HoldTerms, current: bool
) -> Procedure[tuple[set[str], dict[str, Held]]]:
    """Who had to wait for a competitor sees its hold in the next statement."""
    result = yield _INSERT_HOLDS(**_arrays(uniques, terms))
    won = {row[0] for row in result.rows}
    taken = [unique.key for unique in uniques if unique.key not in won]
    return won, ((yield from read(taken)) if taken else {})


def read(keys: Sequence[str]) -> Procedure[dict[str, Held]]:
    """What the holds of these keys say."""
    result = yield _READ_HOLDS(keys=list(keys))
    return {row[0]: replace(held(row[1], row[3:]), held_until=instant_of(row[2])) for row in result.rows}


def swap(stale: Sequence[Stale], terms: HoldTerms) -> Procedure[set[str]]:
    """The keys whose hold still named the stale task."""
    arrays = _arrays([each.unique for each in stale], terms)
    result = yield _SWAP_HOLDS(**arrays, stale_task_ids=[each.task_id for each in stale])
    return {row[0] for row in result.rows}


def lock_tasks(ids: Sequence[UUID]) -> Procedure[dict[UUID, TaskRow]]:
    """As they are now, in id order."""
    result = yield _LOCK_HOLDERS(ids=list(ids), lock_timeout=None)
    rows = [task_row(row) for row in result.rows]
    return {row.id: row for row in rows}


def in_savepoint(procedure: Procedure[T], wait_seconds: float | None) -> Procedure[T]:
    """On an error the savepoint puts the caller's own bound back."""
    return (yield from guarded(procedure if wait_seconds is None else _bounded(procedure, wait_seconds)))


def in_transaction(procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
    """The bound ends with the transaction."""
    yield _SET_LOCK_TIMEOUT(lock_timeout=milliseconds(wait_seconds))
    return (yield from procedure)


def prune(now: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete stale holds, their tasks locked first."""
    found = yield _FIND_STALE_HOLDS(now=now, limit=limit)
    present = [row[2] for row in found.rows if row[2] is not None]
    settled: set[Any] = set()
    if present:
        locked = yield _LOCK_SETTLED_HOLDERS(ids=present)
        settled = {row[0] for row in locked.rows}
    stale = [row for row in found.rows if row[2] is None or row[2] in settled]
    if not stale:
        return 0
    deleted = yield _DELETE_HOLDS(keys=[row[0] for row in stale], task_ids=[row[1] for row in stale])
    return deleted.count


def read_key(key: str, hold: bool) -> Procedure[KeyRow | None]:
    """The key's hold, or its lock."""
    result = yield (_READ_KEY_OF_HOLD if hold else _READ_KEY_OF_LOCK)(key=key)
    return KeyRow(*result.rows[0]) if result.rows else None


def release(key: str, task_id: UUID | None, hold: bool) -> Procedure[bool]:
    """Whether the hold (or lock) was there, and named this task."""
    result = yield (_RELEASE_HOLD if hold else _RELEASE_LOCK)(key=key, task_id=task_id)
    return bool(result.rows)


def _bounded(procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
    before = yield _SET_LOCK_TIMEOUT(lock_timeout=milliseconds(wait_seconds))
    answer = yield from procedure
    yield _SET_LOCK_TIMEOUT(lock_timeout=before.rows[0][0])
    return answer


def _arrays(uniques: Sequence[NewUnique], terms: HoldTerms) -> dict[str, list[Any]]:
    tasks = [unique.task for unique in uniques]
    return {
        "keys": [unique.key for unique in uniques],
        "ids": [task.id for task in tasks],
        "task_paths": [task.task_path for task in tasks],
        "queue_names": [task.queue_name for task in tasks],
        "enqueued_ats": [task.enqueued_at for task in tasks],
        "held_untils": [terms.held_until(task.enqueued_at) for task in tasks],
    }
