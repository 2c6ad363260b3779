"""Holds: keys with terms of their own, in a table that no other program prunes.

Keys are read before anything is written, for the reason that ``joined`` has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room_keys import Stale, View
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql import joined
from oxpull_async.drivers.mysql._rows import document, held, hex_id, instant, lock_document
from oxpull_async.drivers.mysql.unique import lock_holders
from oxpull_async.ports import Held, NewUnique, TaskRow
from oxpull_async.ports_keys import KeyRow

T = TypeVar("T")

_SQL = load_statements(__package__, "holds.sql")
_INSERT_HOLD = _SQL["insert_hold"]
_READ_HOLD_IDS = _SQL["read_hold_ids"]
_READ_HOLDS = _SQL["read_holds"]
_LOCK_HOLDS = _SQL["lock_holds"]
_SWAP_HOLDS = _SQL["swap_holds"]
_FIND_STALE_HOLDS = _SQL["find_stale_holds"]
_DELETE_HOLDS = _SQL["delete_holds"]
_READ_KEY_OF_HOLD = _SQL["read_key_of_hold"]
_READ_KEY_OF_LOCK = _SQL["read_key_of_lock"]
_RELEASE_HOLD = _SQL["release_hold"]
_RELEASE_LOCK = _SQL["release_lock"]
_LOCK_SETTLED_HOLDERS = load_statements(__package__, "maintenance.sql")["lock_settled_holders"]


def view() -> Procedure[View]:
    """Of the session, which is the transaction's unless it was set for this one alone."""
    level = yield from joined.read_level()
    return View(level.is_snapshot, not level.isolates_snapshots, level.punishes)


def insert_free(
    uniques: Sequence[NewUnique], terms: HoldTerms, current: bool
) -> Procedure[tuple[set[str], dict[str, Held]]]:
    """Only keys that are seen to be free are tried."""
    keys = [unique.key for unique in uniques]
    seen = yield from (_lock(keys) if current else read(keys))
    missing = [unique for unique in uniques if unique.key not in seen]
    if not missing:
        return set(), seen
    if len(missing) > 1:
        return (yield from _insert(missing, terms)), seen
    return (yield from joined.in_turn(missing[0].key, _insert(missing, terms))), seen


def read(keys: Sequence[str]) -> Procedure[dict[str, Held]]:
    """What the holds of these keys say."""
    result = yield _READ_HOLDS(keys=tuple(keys))
    return {row[0]: replace(held(row[1], row[3:]), held_until=_aware(row[2])) for row in result.rows}


def swap(stale: Sequence[Stale], terms: HoldTerms) -> Procedure[set[str]]:
    """The keys whose hold still named the stale task."""
    holds = [{**_values(each.unique, terms), "stale_task_id": each.task_id.hex} for each in stale]
    yield _SWAP_HOLDS(holds=document(holds))
    return (yield from _won_among([each.unique for each in stale]))


def lock_tasks(ids: Sequence[UUID]) -> Procedure[dict[UUID, TaskRow]]:
    """As they are now, in id order."""
    rows = yield from lock_holders(ids)
    return {task_id: row for task_id, row in rows.items() if task_id is not None}


def in_savepoint(procedure: Procedure[T], wait_seconds: float | None) -> Procedure[T]:
    """The bound is the session's, so it's put back outside of the savepoint."""
    return (
        yield from (guarded(procedure) if wait_seconds is None else joined.bounded(guarded(procedure), wait_seconds))
    )


def in_transaction(procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
    """The session's own bound is put back."""
    return (yield from joined.bounded(procedure, wait_seconds))


def prune(now: datetime, limit: int) -> Procedure[int]:
    """Within a transaction: delete stale holds, their tasks locked first."""
    found = yield _FIND_STALE_HOLDS(now=instant(now), limit=limit)
    present = [row[2] for row in found.rows if row[2] is not None]
    settled: set[str] = set()
    if present:
        locked = yield _LOCK_SETTLED_HOLDERS(ids=tuple(present))
        settled = {row[0] for row in locked.rows}
    stale = [row for row in found.rows if row[2] is None or row[2] in settled]
    if not stale:
        return 0
    deleted = yield _DELETE_HOLDS(locks=lock_document(stale))
    return deleted.count


def read_key(key: str, hold: bool) -> Procedure[KeyRow | None]:
    """The key's hold, or its lock."""
    result = yield (_READ_KEY_OF_HOLD if hold else _READ_KEY_OF_LOCK)(key=key)
    if not result.rows:
        return None
    task_id, created_at, held_until = result.rows[0]
    return KeyRow(None if task_id is None else UUID(task_id), created_at.replace(tzinfo=UTC), _aware(held_until))


def release(key: str, task_id: UUID | None, hold: bool) -> Procedure[bool]:
    """Whether the hold (or lock) was there, and named this task."""
    result = yield (_RELEASE_HOLD if hold else _RELEASE_LOCK)(key=key, task_id=hex_id(task_id))
    return result.count > 0


def _lock(keys: Sequence[str]) -> Procedure[dict[str, Held]]:
    """As they are now, under row locks."""
    result = yield _LOCK_HOLDS(keys=tuple(keys))
    rows = (yield from lock_tasks([UUID(row[1]) for row in result.rows])) if result.rows else {}
    return {row[0]: Held(UUID(row[1]), rows.get(UUID(row[1])), _aware(row[2])) for row in result.rows}


def _insert(uniques: Sequence[NewUnique], terms: HoldTerms) -> Procedure[set[str]]:
    yield _INSERT_HOLD.many([_values(unique, terms) for unique in uniques])
    return (yield from _won_among(uniques))


def _won_among(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    """Those whose holds name our rows: the ids are ours alone, and a count isn't the same with every driver."""
    result = yield _READ_HOLD_IDS(keys=tuple(unique.key for unique in uniques))
    ids = {row[0]: UUID(row[1]) for row in result.rows}
    return {unique.key for unique in uniques if ids.get(unique.key) == unique.task.id}


def _aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


def _values(unique: NewUnique, terms: HoldTerms) -> dict[str, Any]:
    task = unique.task
    return {
        "key": unique.key,
        "task_id": task.id.hex,
        "task_path": task.task_path,
        "queue_name": task.queue_name,
        "created_at": instant(task.enqueued_at),
        "held_until": instant(terms.held_until(task.enqueued_at)),
    }
