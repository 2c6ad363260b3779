"""Holds: keys with terms of their own, in a table that no other program prunes.

Whoever runs these has written, or writes first: so what is read stays true
until the commit. The bound on the wait belongs to the BEGIN.
"""

from __future__ import annotations

import json
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
from oxpull_async.drivers.sqlite import tasks
from oxpull_async.drivers.sqlite._rows import held, instant, stored_instant, text
from oxpull_async.ports import Held, NewUnique, TaskRow
from oxpull_async.ports_keys import KeyRow

T = TypeVar("T")

_SQL = load_statements(__package__, "holds.sql")
_INSERT_HOLDS = _SQL["insert_holds"]
_READ_HOLDS = _SQL["read_holds"]
_SWAP_HOLD = _SQL["swap_hold"]
_DELETE_STALE_HOLDS = _SQL["delete_stale_holds"]
_READ_KEY_OF_HOLD = _SQL["read_key_of_hold"]
_READ_KEY_OF_LOCK = _SQL["read_key_of_lock"]
_RELEASE_HOLD = _SQL["release_hold"]
_RELEASE_LOCK = _SQL["release_lock"]


def view() -> Procedure[View]:
    """Who has written reads what is committed."""
    yield from ()
    return View(is_snapshot=False, changed_rows_lockable=True, punishes=False)


def insert_free(
    uniques: Sequence[NewUnique], terms: HoldTerms, current: bool
) -> Procedure[tuple[set[str], dict[str, Held]]]:
    """Written before anything is read: a transaction that has read doesn't wait for its turn to write."""
    result = yield _INSERT_HOLDS(holds=json.dumps([list(_values(unique, terms).values()) for unique in uniques]))
    won = {row[0] for row in result.rows}
    taken = [unique.key for unique in uniques if unique.key not in won]
    return won, ((yield from read(taken)) if taken else {})


def read(keys: Sequence[str]) -> Procedure[dict[str, Held]]:
    """What the holds of these keys say."""
    result = yield _READ_HOLDS(keys=json.dumps(list(keys)))
    return {row[0]: _held(row) for row in result.rows}


def swap(stale: Sequence[Stale], terms: HoldTerms) -> Procedure[set[str]]:
    """The keys whose hold still named the stale task."""
    won: set[str] = set()
    for each in stale:
        result = yield _SWAP_HOLD(**_values(each.unique, terms), stale_task_id=each.task_id.hex)
        won |= {each.unique.key} if result.count else set()
    return won


def lock_tasks(ids: Sequence[UUID]) -> Procedure[dict[UUID, TaskRow]]:
    """As they are now: nobody else writes meanwhile."""
    rows = yield from tasks.get_many(ids)
    return {row.id: row for row in rows}


def in_savepoint(procedure: Procedure[T], wait_seconds: float | None) -> Procedure[T]:
    """How long the first write waits is the caller's own ``busy_timeout``."""
    return (yield from guarded(procedure))


def in_transaction(procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
    """The wait is over once the transaction has begun."""
    return (yield from procedure)


def prune(now: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete stale holds."""
    deleted = yield _DELETE_STALE_HOLDS(now=text(now), limit=limit)
    return deleted.count


def read_key(key: str, hold: bool) -> Procedure[KeyRow | None]:
    """The key's hold, or its lock."""
    result = yield (_READ_KEY_OF_HOLD if hold else _READ_KEY_OF_LOCK)(key=key)
    if not result.rows:
        return None
    task_id, created_at, held_until = result.rows[0]
    return KeyRow(None if task_id is None else UUID(task_id), stored_instant(created_at), instant(held_until))


def release(key: str, task_id: UUID | None, hold: bool) -> Procedure[bool]:
    """Whether the hold (or lock) was there, and named this task."""
    statement = _RELEASE_HOLD if hold else _RELEASE_LOCK
    result = yield statement(key=key, task_id=None if task_id is None else task_id.hex)
    return result.count > 0


def _held(row: Sequence[Any]) -> Held:
    key, task_id, held_until, *task = row
    found = held([key, task_id, *task])
    assert isinstance(found, Held)
    return replace(found, held_until=instant(held_until))


def _values(unique: NewUnique, terms: HoldTerms) -> dict[str, Any]:
    task = unique.task
    return {
        "key": unique.key,
        "id": task.id.hex,
        "task_path": task.task_path,
        "queue_name": task.queue_name,
        "enqueued_at": text(task.enqueued_at),
        "held_until": text(terms.held_until(task.enqueued_at)),
    }
