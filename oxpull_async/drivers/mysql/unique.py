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
    document,
    held,
    hex_id,
    hex_ids,
    lock_values,
    task_row,
    task_values,
    unique_values,
)
from oxpull_async.drivers.mysql._transactions import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    SHORTEST_WAIT_SECONDS,
    repeated,
    repeated_inside,
)
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, TakeOver, TaskRow, Unseen

_SQL = load_statements(__package__, "unique.sql")
_INSERT_UNIQUE = _SQL["insert_unique"]
_INSERT_UNIQUE_AT_ONCE = _SQL["insert_unique_at_once"]
_LOCK_KEYS = _SQL["lock_keys"]
_LOCK_KEYS_AT_ONCE = _SQL["lock_keys_at_once"]
_INSERT_LOCK = _SQL["insert_lock"]
_READ_LOCKS = _SQL["read_locks"]
_READ_HOLDER = _SQL["read_holder"]
_READ_HOLDERS = _SQL["read_holders"]
_LOCK_HOLDERS = _SQL["lock_holders"]
_TAKE_LOCKS_OVER = _SQL["take_locks_over"]
_TASKS_SQL = load_statements(__package__, "tasks.sql")
_INSERT_TASK = _TASKS_SQL["insert_task"]
_GET_TASK = _TASKS_SQL["get_task"]


def insert(
    uniques: Sequence[NewUnique], wait_seconds: float, *, probably_free: bool = False
) -> Procedure[list[Attempt]]:
    """Lock and task of every free key, in a transaction that says BEGIN and COMMIT itself.

    A look first, unless they are probably free: a lost INSERT costs more than the look, and locks the row that it lost
    to. For a wait shorter than the server's shortest, a look every few milliseconds stands in.
    """
    at_once = wait_seconds < SHORTEST_WAIT_SECONDS
    if len(uniques) == 1:
        one = yield from repeated(lambda: _insert_one(uniques[0], at_once, probably_free), wait_seconds)
        return [one]
    found = yield from repeated(lambda: _insert_several(uniques, at_once, probably_free), wait_seconds)
    return [found[unique.key] for unique in uniques]


def _insert_one(unique: NewUnique, at_once: bool, probably_free: bool) -> Procedure[Attempt]:
    seen: Attempt = Unseen() if probably_free else (yield from _read_holder(unique.key))
    if not isinstance(seen, Unseen):
        return seen
    statement = _INSERT_UNIQUE_AT_ONCE if at_once else _INSERT_UNIQUE
    try:
        yield statement(**unique_values(unique))
    except UniqueViolation:
        yield ROLLBACK()
        return (yield from _lost(unique))
    return Inserted()


def _lost(unique: NewUnique) -> Procedure[Attempt]:
    """Whose the key is now; unless it wasn't the key that existed, but the task's id."""
    seen = yield from _read_holder(unique.key)
    if isinstance(seen, Unseen) and (yield _GET_TASK(id=unique.task.id.hex)).rows:
        raise UniqueViolation(f"a task row {unique.task.id} exists already", table="django_ox_oxtask")
    return seen


def _insert_several(uniques: Sequence[NewUnique], at_once: bool, probably_free: bool) -> Procedure[dict[str, Attempt]]:
    found = {} if probably_free else (yield from read_holders([unique.key for unique in uniques]))
    free = [unique for unique in uniques if isinstance(found.get(unique.key, Unseen()), Unseen)]
    if free:
        yield BEGIN()
        won = yield from _insert_free(free, at_once)
        yield COMMIT()
        lost = [unique.key for unique in free if unique.key not in won]
        found |= dict.fromkeys(won, Inserted())
        found |= (yield from read_holders(lost)) if lost else {}
    return found


def insert_together(uniques: Sequence[NewUnique], wait_seconds: float, passes: int) -> Procedure[list[Attempt]]:
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
    if len(keys) == 1:
        return {keys[0]: (yield from _read_holder(keys[0]))}
    if not keys:
        return {}
    result = yield _READ_HOLDERS(keys=tuple(keys))
    seen = {row[0]: held(row[1], row[2:]) for row in result.rows}
    return {key: seen.get(key, Unseen()) for key in keys}


def _read_holder(key: str) -> Procedure[Attempt]:
    result = yield _READ_HOLDER(key=key)
    return held(result.rows[0][1], result.rows[0][2:]) if result.rows else Unseen()


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
    rows = (yield from repeated_inside(lambda: lock_holders(ids), wait_seconds)) if ids else {}
    found = {key: rows[holder.task_id] for key, holder in stale.items() if holder.task_id in rows}
    return {key: Held(row.id, row) for key, row in found.items() if is_pending(row.status)}


def lock_holders(ids: Sequence[UUID]) -> Procedure[dict[UUID | None, TaskRow]]:
    result = yield _LOCK_HOLDERS(ids=hex_ids(ids))
    rows = [task_row(row) for row in result.rows]
    return {row.id: row for row in rows}


def _write(uniques: Sequence[NewUnique], stale: Mapping[str, Held], wait_seconds: float) -> Procedure[set[str]]:
    """Insert missing locks and take stale ones over, all in key order, the order of everybody here."""
    won: set[str] = set()
    for is_stale, group in groupby(uniques, key=lambda unique: unique.key in stale):
        run = list(group)
        write = partial(take_locked_over, run, stale) if is_stale else partial(_insert_free, run)
        won |= yield from repeated_inside(write, wait_seconds)
    return won


def _insert_free(uniques: Sequence[NewUnique], at_once: bool = False) -> Procedure[set[str]]:
    lock = _LOCK_KEYS_AT_ONCE if at_once else _LOCK_KEYS
    yield lock(keys=tuple(unique.key for unique in uniques))
    result = yield _INSERT_LOCK.many([lock_values(unique) for unique in uniques])
    if result.count < len(uniques):
        uniques = yield from won_among(uniques)
    return (yield from insert_rows(uniques))


def take_locked_over(uniques: Sequence[NewUnique], stale: Mapping[str, Held]) -> Procedure[set[str]]:
    locks = [{**lock_values(unique), "stale_task_id": hex_id(stale[unique.key].task_id)} for unique in uniques]
    result = yield _TAKE_LOCKS_OVER(locks=document(locks))
    if result.count < len(uniques):
        uniques = yield from won_among(uniques)
    return (yield from insert_rows(uniques))


def won_among(uniques: Sequence[NewUnique]) -> Procedure[list[NewUnique]]:
    """Those whose locks name our rows: the ids are ours alone."""
    result = yield _READ_LOCKS(keys=tuple(unique.key for unique in uniques))
    holders = {row[0]: row[1] and UUID(row[1]) for row in result.rows}
    return [unique for unique in uniques if holders.get(unique.key) == unique.task.id]


def insert_rows(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    if uniques:
        yield _INSERT_TASK.many([task_values(unique.task) for unique in uniques])
    return {unique.key for unique in uniques}


def _is_pending(answer: Attempt) -> bool:
    return isinstance(answer, Held) and answer.row is not None and is_pending(answer.row.status)
