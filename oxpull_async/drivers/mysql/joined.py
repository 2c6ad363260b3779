"""Inside a caller's transaction: savepoints, whatever its isolation level.

Keys are read before anything is written: an INSERT that loses locks the row
it lost to, no savepoint lets go of that, and two such losers deadlock, which
costs one of them the whole transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar
from uuid import UUID

from oxpull_async.core.uniqueness import is_pending
from oxpull_async.drivers._procedure import REFUSALS, Procedure, Undecided
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql import tasks as task_procedures
from oxpull_async.drivers.mysql._rows import held, lock_values
from oxpull_async.drivers.mysql.unique import insert_rows, lock_holders, take_locked_over, won_among
from oxpull_async.exceptions import ConnectionLost, LockNotAvailable, StoreError, TransactionRolledBack
from oxpull_async.ports import Attempt, Held, Inserted, NewTask, NewUnique, Unseen
from oxpull_async.ports_joined import JoinedAnswers

T = TypeVar("T")

_SQL = load_statements(__package__, "joined.sql")
_READ_LEVEL = _SQL["read_level"]
_SHOW_LEVEL = _SQL["show_level"]
_READ_HOLDERS = _SQL["read_holders"]
_LOCK_LOCKS = _SQL["lock_locks"]
_GET_TURN = _SQL["get_turn"]
_END_TURN = _SQL["end_turn"]
_READ_LOCK_WAIT = _SQL["read_lock_wait"]
_INSERT_LOCK = load_statements(__package__, "unique.sql")["insert_lock"]
_SET_LOCK_WAIT = _SQL["set_lock_wait"]
_LOCK_TASK_AT_ONCE = _SQL["lock_task_at_once"]
_IDENTIFY = _SQL["identify"]

_UNKNOWN = frozenset({1193, 1064})  # a variable that this server doesn't have, or nothing where one should be
_SNAPSHOTS = frozenset({"REPEATABLE-READ", "READ-UNCOMMITTED"})


@dataclass(frozen=True, slots=True)
class Level:
    """How this session's transactions read."""

    name: str
    isolates_snapshots: bool

    @property
    def is_snapshot(self) -> bool:
        """Whether a plain read may tell something else than what is committed now."""
        return self.name in _SNAPSHOTS

    @property
    def punishes(self) -> bool:
        """Whether to touch a row that others have changed since the snapshot costs the transaction (1020)."""
        return self.isolates_snapshots and self.is_snapshot


def insert_tasks(tasks: Sequence[NewTask]) -> Procedure[None]:
    yield from guarded(task_procedures.insert(tasks))


def insert_unique(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int, current: bool
) -> Procedure[JoinedAnswers]:
    level = yield from read_level()
    if level.punishes and not current:
        seen = yield from _read_holders(uniques)
        view = [seen.get(unique.key, Unseen()) for unique in uniques]
        return JoinedAnswers(view, from_snapshot=True, changed_rows_lockable=False, only_read=True)
    decided = guarded(_all_or_nothing(uniques, level, passes, current and not level.punishes))
    try:
        answers = yield from (decided if wait_seconds is None else bounded(decided, wait_seconds))
    except Undecided:
        answers = [Unseen()] * len(uniques)
    return JoinedAnswers(answers, from_snapshot=level.is_snapshot, changed_rows_lockable=not level.isolates_snapshots)


def unchanged(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """Never known from inside: a look that takes a lock would keep it until the caller's commit."""
    yield from ()
    return False


def uncommitted(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """A row that can't be read and yet can't be locked was inserted by a transaction that is still open."""
    if (yield from task_procedures.get_many(task_ids)):
        return False
    for task_id in task_ids:
        try:
            yield _LOCK_TASK_AT_ONCE(id=task_id.hex)
        except LockNotAvailable:
            continue
        return False
    return True


def isolation_level() -> Procedure[str | None]:
    """Of the session, which is the transaction's unless it was set for this one alone."""
    level = yield from read_level()
    return level.name


def reads_what_is_committed() -> Procedure[bool]:
    """Whether a plain read sees what others have committed by now, without a lock."""
    level = yield from read_level()
    return level.name == "READ-COMMITTED"


def identify() -> Procedure[tuple[object, ...]]:
    """What tells one database from another."""
    result = yield _IDENTIFY()
    return tuple(result.rows[0])


def telling(procedure: Procedure[T]) -> Procedure[T]:
    """There are no notifications."""
    return procedure


def _all_or_nothing(uniques: Sequence[NewUnique], level: Level, passes: int, current: bool) -> Procedure[list[Attempt]]:
    decided: dict[str, Attempt] = {}
    for _ in range(passes):
        open_ = [unique for unique in uniques if unique.key not in decided]
        decided |= yield from _pass(open_, current)
        if len(decided) == len(uniques) or (level.is_snapshot and not current):
            # A key that was taken since the snapshot will never be seen in it.
            return [decided.get(unique.key, Unseen()) for unique in uniques]
    raise Undecided("a key changed hands at each pass")


def _pass(uniques: Sequence[NewUnique], current: bool) -> Procedure[dict[str, Attempt]]:
    """One look at every key: pending holders are found, stale locks taken over, missing ones inserted."""
    found = yield from (_lock_holders_of(uniques) if current else _read_holders(uniques))
    pending: dict[str, Attempt] = {key: holder for key, holder in found.items() if _is_pending(holder)}
    stale = {key: holder for key, holder in found.items() if key not in pending}
    if stale and not current:
        revived = yield from _revived(stale)
        pending |= revived
    taken = [unique for unique in uniques if unique.key in stale and unique.key not in pending]
    won: set[str] = (yield from take_locked_over(taken, stale)) if taken else set()
    missing = [unique for unique in uniques if unique.key not in found]
    won |= (yield from _insert_missing(missing)) if missing else set()
    return pending | dict.fromkeys(won, Inserted())


def _read_holders(uniques: Sequence[NewUnique]) -> Procedure[dict[str, Held]]:
    result = yield _READ_HOLDERS(keys=tuple(unique.key for unique in uniques))
    return {row[0]: held(row[1], row[2:]) for row in result.rows}


def _lock_holders_of(uniques: Sequence[NewUnique]) -> Procedure[dict[str, Held]]:
    """As they are now, under row locks: the holders by id, then their locks would be read anew."""
    result = yield _LOCK_LOCKS(keys=tuple(unique.key for unique in uniques))
    ids = {row[0]: None if row[1] is None else UUID(row[1]) for row in result.rows}
    known = [task_id for task_id in ids.values() if task_id is not None]
    rows = (yield from lock_holders(known)) if known else {}
    return {key: Held(task_id, rows.get(task_id)) for key, task_id in ids.items()}


def _revived(stale: Mapping[str, Held]) -> Procedure[dict[str, Attempt]]:
    """Lock the holders by id, and return those that turn out to be pending after all."""
    ids = [holder.task_id for holder in stale.values() if holder.task_id is not None]
    rows = (yield from lock_holders(ids)) if ids else {}
    now = {key: Held(holder.task_id, rows.get(holder.task_id)) for key, holder in stale.items()}
    return {key: holder for key, holder in now.items() if _is_pending(holder)}


def _insert_missing(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    """The keys that were won."""
    if len(uniques) == 1:
        return (yield from in_turn(uniques[0].key, _insert_free(uniques)))
    return (yield from _insert_free(uniques))


def in_turn(key: str, insert: Procedure[T]) -> Procedure[T]:
    """One at a time where many wait for the same key: if its holder rolls back, all but one of those who
    wait inside the INSERT would be chosen as a deadlock's victims, and lose their whole transactions.
    """
    result = yield _GET_TURN(key=key)
    has_turn = bool(result.rows[0][0])
    try:
        won = yield from insert
    except ConnectionLost:
        raise
    except REFUSALS:
        if has_turn:
            yield _END_TURN(key=key)
        raise
    if has_turn:
        yield _END_TURN(key=key)
    return won


def _insert_free(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    yield _INSERT_LOCK.many([lock_values(unique) for unique in uniques])
    won = yield from won_among(uniques)  # a count of many rows isn't the same with every driver
    return (yield from insert_rows(won))


def bounded(procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
    """With the session's own bound put back at the end. The server knows whole seconds."""
    result = yield _READ_LOCK_WAIT()
    before = result.rows[0][0]
    yield _SET_LOCK_WAIT(seconds=max(1, ceil(wait_seconds)))
    try:
        answers = yield from procedure
    except ConnectionLost:
        raise
    except (*REFUSALS, TransactionRolledBack):
        yield _SET_LOCK_WAIT(seconds=before)
        raise
    yield _SET_LOCK_WAIT(seconds=before)
    return answers


def read_level() -> Procedure[Level]:
    """How this session's transactions read."""
    try:
        result = yield _READ_LEVEL()
    except StoreError as error:
        if error.code not in _UNKNOWN:
            raise
        return (yield from _show_level())
    name, isolates = result.rows[0]
    return Level(name, _is_on(isolates))


def _show_level() -> Procedure[Level]:
    result = yield _SHOW_LEVEL()
    found = {row[0]: row[1] for row in result.rows}
    name = found.get("transaction_isolation") or found["tx_isolation"]
    return Level(name, _is_on(found.get("innodb_snapshot_isolation")))


def _is_on(value: object) -> bool:
    return value in (1, "1", "ON")


def _is_pending(holder: Held) -> bool:
    return holder.row is not None and is_pending(holder.row.status)
