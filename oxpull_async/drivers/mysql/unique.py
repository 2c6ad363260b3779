"""Unique enqueue: the lock row's primary key decides every race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from uuid import UUID

from oxpull_async.core.uniqueness import is_pending
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql._rows import (
    attempt,
    held,
    hex_ids,
    lock_values,
    task_row,
    task_values,
    unique_values,
)
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT, repeated, repeated_inside
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, TakeOver, TaskRow, Unseen

_SQL = load_statements(__package__, "unique.sql")
_INSERT_UNIQUE = _SQL["insert_unique"]
_INSERT_LOCK = _SQL["insert_lock"]
_READ_LOCKS = _SQL["read_locks"]
_READ_HOLDERS = _SQL["read_holders"]
_LOCK_HOLDERS = _SQL["lock_holders"]
_TAKE_LOCK_OVER = _SQL["take_lock_over"]
_INSERT_TASK = load_statements(__package__, "tasks.sql")["insert_task"]


def insert(uniques: Sequence[NewUnique], wait_seconds: float) -> Procedure[list[Attempt]]:
    """Lock and task of every free key, in a transaction that says BEGIN and COMMIT itself."""
    if len(uniques) == 1:
        return [(yield from repeated(lambda: _insert_one(uniques[0]), wait_seconds))]
    found = yield from read_holders([unique.key for unique in uniques])
    free = [unique for unique in uniques if isinstance(found[unique.key], Unseen)]
    if free:
        won = yield from repeated(lambda: _insert_free(free), wait_seconds)
        lost = [unique.key for unique in free if unique.key not in won]
        found |= dict.fromkeys(won, Inserted())
        found |= (yield from read_holders(lost)) if lost else {}
    return [found[unique.key] for unique in uniques]


def _insert_one(unique: NewUnique) -> Procedure[Attempt]:
    result = yield _INSERT_UNIQUE(**unique_values(unique))
    return attempt(result.rows)


def _insert_free(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    yield BEGIN()
    won = yield from _insert_locked(uniques)
    yield COMMIT()
    return won


def insert_together(
    uniques: Sequence[NewUnique], wait_seconds: float, passes: int
) -> Procedure[list[Attempt]]:
    """Every key decided within the transaction that surrounds this; stale locks are taken over.

    Each statement reads what was committed before it, so that a competitor
    waited for in one is seen by the next.
    """
    decided: dict[str, Attempt] = {}
    for _ in range(passes):
        open_ = [unique for unique in uniques if unique.key not in decided]
        found = yield from read_holders([unique.key for unique in open_])
        decided |= {key: answer for key, answer in found.items() if _is_pending(answer)}
        stale = {key: held for key, held in found.items() if isinstance(held, Held) and key not in decided}
        decided |= yield from _revived(stale, wait_seconds)
        won = yield from _write([u for u in open_ if u.key not in decided], stale, wait_seconds)
        decided |= dict.fromkeys(won, Inserted())
        if len(decided) == len(uniques):
            break
    return [decided.get(unique.key, Unseen()) for unique in uniques]


def read_holders(keys: Sequence[str]) -> Procedure[dict[str, Attempt]]:
    """What the locks of these keys say now; ``Unseen`` for a key without a lock."""
    result = yield _READ_HOLDERS(keys=tuple(keys))
    seen = {row[0]: held(row[1], row[2:]) for row in result.rows}
    return {key: seen.get(key, Unseen()) for key in keys}


def take_over(request: TakeOver, wait_seconds: float) -> Procedure[Attempt]:
    """Within a transaction: point the stale lock at the new row, under its holder's row lock."""
    key = request.unique.key
    stale = {key: Held(request.stale_task_id, None)}
    alive = yield from _revived(stale, wait_seconds)
    if key in alive:
        return alive[key]
    won = yield from _write([request.unique], stale, wait_seconds)
    return Inserted() if won else Unseen()


def _revived(stale: Mapping[str, Held], wait_seconds: float) -> Procedure[dict[str, Attempt]]:
    """Lock the holders by id, and return those that turn out to be pending after all."""
    ids = [holder.task_id for holder in stale.values() if holder.task_id is not None]
    rows = (yield from repeated_inside(lambda: _lock_holders(ids), wait_seconds)) if ids else {}
    found = {key: rows[holder.task_id] for key, holder in stale.items() if holder.task_id in rows}
    return {key: Held(row.id, row) for key, row in found.items() if is_pending(row.status)}


def _lock_holders(ids: Sequence[UUID]) -> Procedure[dict[UUID | None, TaskRow]]:
    result = yield _LOCK_HOLDERS(ids=hex_ids(ids))
    rows = [task_row(row) for row in result.rows]
    return {row.id: row for row in rows}


def _write(
    uniques: Sequence[NewUnique], stale: Mapping[str, Held], wait_seconds: float
) -> Procedure[set[str]]:
    """Insert missing locks and take stale ones over, all in key order, the order of everybody here."""
    won: set[str] = set()
    for is_stale, group in groupby(uniques, key=lambda unique: unique.key in stale):
        run = list(group)
        write = partial(_take_locked_over, run, stale) if is_stale else partial(_insert_locked, run)
        won |= yield from repeated_inside(write, wait_seconds)
    return won


def _insert_locked(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    result = yield _INSERT_LOCK.many([lock_values(unique) for unique in uniques])
    if result.count < len(uniques):
        uniques = yield from _won(uniques)
    return (yield from _insert_tasks(uniques))


def _take_locked_over(uniques: Sequence[NewUnique], stale: Mapping[str, Held]) -> Procedure[set[str]]:
    yield _TAKE_LOCK_OVER.many(
        [{**lock_values(unique), "stale_task_id": _hex(stale[unique.key].task_id)} for unique in uniques]
    )
    return (yield from _insert_tasks((yield from _won(uniques))))


def _won(uniques: Sequence[NewUnique]) -> Procedure[list[NewUnique]]:
    """Those whose locks name our rows: the ids are ours alone."""
    result = yield _READ_LOCKS(keys=tuple(unique.key for unique in uniques))
    holders = {row[0]: row[1] and UUID(row[1]) for row in result.rows}
    return [unique for unique in uniques if holders.get(unique.key) == unique.task.id]


def _insert_tasks(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    if uniques:
        yield _INSERT_TASK.many([task_values(unique.task) for unique in uniques])
    return {unique.key for unique in uniques}


def _hex(task_id: UUID | None) -> str | None:
    return None if task_id is None else task_id.hex


def _is_pending(answer: Attempt) -> bool:
    return isinstance(answer, Held) and answer.row is not None and is_pending(answer.row.status)
