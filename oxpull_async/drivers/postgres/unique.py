"""Unique enqueue: the lock row's primary key decides every race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from oxpull_async.core.uniqueness import is_pending
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres._rows import (
    attempt,
    held,
    milliseconds,
    task_row,
    unique_arrays,
    unique_values,
)
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, TakeOver, TaskRow, Unseen

_SQL = load_statements(__package__, "unique.sql")
_INSERT_UNIQUE = _SQL["insert_unique"]
_INSERT_UNIQUES = _SQL["insert_uniques"]
_INSERT_FREE = _SQL["insert_free"]
_READ_HOLDERS = _SQL["read_holders"]
_LOCK_HOLDERS = _SQL["lock_holders"]
_DELETE_STALE_LOCKS = _SQL["delete_stale_locks"]


def insert(
    uniques: Sequence[NewUnique], wait_seconds: float | None, *, probably_free: bool = False
) -> Procedure[list[Attempt]]:
    """Lock and task of every free key in one statement; nothing to roll back for the others.

    Who holds a single key that is probably free isn't looked at: it's ``Unseen`` if it isn't free.
    """
    if probably_free and len(uniques) == 1:
        single = yield _INSERT_FREE(**unique_values(uniques[0]), lock_timeout=milliseconds(wait_seconds))
        return [Inserted() if single.rows else Unseen()]
    answers, _ = yield from _insert(uniques, wait_seconds)
    return answers


def insert_together(uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int) -> Procedure[list[Attempt]]:
    """Every key decided within the transaction that surrounds this; stale locks are taken over."""
    answers, _ = yield from decide(uniques, wait_seconds, passes)
    return answers


def decide(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int
) -> Procedure[tuple[list[Attempt], str]]:
    """As ``insert_together``, with the transaction's isolation level.

    At READ COMMITTED each statement reads what was committed before it, so
    that a competitor waited for in one is seen by the next.
    """
    decided: dict[str, Attempt] = {}
    level = ""
    for _ in range(passes):
        open_ = [unique for unique in uniques if unique.key not in decided]
        answers, level = yield from _insert(open_, wait_seconds)
        found = {unique.key: answer for unique, answer in zip(open_, answers, strict=True)}
        if unseen := [key for key, answer in found.items() if isinstance(answer, Unseen)]:
            found |= yield from read_holders(unseen)
        decided |= {key: answer for key, answer in found.items() if _is_decided(answer)}
        stale = {key: held for key, held in found.items() if isinstance(held, Held) and key not in decided}
        if stale:
            decided |= yield from _free(stale, wait_seconds)
        if len(decided) == len(uniques):
            break
    return [decided.get(unique.key, Unseen()) for unique in uniques], level


def read_holders(keys: Sequence[str]) -> Procedure[dict[str, Attempt]]:
    """What the locks of these keys say now; ``Unseen`` for a key without a lock."""
    result = yield _READ_HOLDERS(keys=list(keys))
    seen = {row[0]: held(row[1], row[2:]) for row in result.rows}
    return {key: seen.get(key, Unseen()) for key in keys}


def take_over(request: TakeOver, wait_seconds: float | None) -> Procedure[Attempt]:
    """Within a transaction: free the stale lock under its holder's row lock, then insert anew."""
    key = request.unique.key
    alive = yield from _free({key: Held(request.stale_task_id, None)}, wait_seconds)
    if key in alive:
        return alive[key]
    (answer,) = yield from insert([request.unique], wait_seconds)
    return answer


def _insert(uniques: Sequence[NewUnique], wait_seconds: float | None) -> Procedure[tuple[list[Attempt], str]]:
    if len(uniques) == 1:
        single = yield _INSERT_UNIQUE(**unique_values(uniques[0]), lock_timeout=milliseconds(wait_seconds))
        inserted, level, key, task_id, *row = single.rows[0]
        return [attempt(inserted, key, task_id, row)], level
    several = yield _INSERT_UNIQUES(**unique_arrays(uniques), lock_timeout=milliseconds(wait_seconds))
    level, inserted = several.rows[0][:2]
    missed = {row[2]: attempt(None, row[3], row[4], row[5:]) for row in several.rows if row[2] is not None}
    if inserted + len(missed) != len(uniques):
        raise AssertionError(f"{inserted} of {len(uniques)} keys were inserted, but {len(missed)} weren't")
    return [missed.get(unique.key) or Inserted() for unique in uniques], level


def _free(stale: Mapping[str, Held], wait_seconds: float | None) -> Procedure[dict[str, Attempt]]:
    """Delete stale locks, and return the holders that turned out to be pending after all.

    Holders are locked by id, then locks by key, the order of everybody here.
    """
    ids = [holder.task_id for holder in stale.values() if holder.task_id is not None]
    rows = (yield from _lock_holders(ids, wait_seconds)) if ids else {}
    alive: dict[str, Attempt] = {}
    dead: dict[str, UUID | None] = {}
    for key, holder in stale.items():
        row = rows.get(holder.task_id) if holder.task_id is not None else None
        if row is not None and is_pending(row.status):
            alive[key] = Held(row.id, row)
        else:
            dead[key] = holder.task_id
    if dead:
        yield _DELETE_STALE_LOCKS(keys=list(dead), task_ids=list(dead.values()))
    return alive


def _lock_holders(ids: Sequence[UUID], wait_seconds: float | None) -> Procedure[dict[UUID, TaskRow]]:
    result = yield _LOCK_HOLDERS(ids=list(ids), lock_timeout=milliseconds(wait_seconds))
    rows = [task_row(row) for row in result.rows]
    return {row.id: row for row in rows}


def _is_decided(answer: Attempt) -> bool:
    match answer:
        case Inserted():
            return True
        case Held(row=row):
            return row is not None and is_pending(row.status)
        case Unseen():
            return False
