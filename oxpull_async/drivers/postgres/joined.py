"""Inside a caller's transaction: savepoints, whatever its isolation level."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._savepoints import guarded, undone
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres import tasks as task_procedures
from oxpull_async.drivers.postgres import unique as unique_procedures
from oxpull_async.drivers.postgres._rows import milliseconds
from oxpull_async.drivers.postgres._telling import telling as telling
from oxpull_async.exceptions import LockNotAvailable
from oxpull_async.ports import Attempt, NewTask, NewUnique, Unseen
from oxpull_async.ports_joined import JoinedAnswers

_SQL = load_statements(__package__, "unique.sql")
_PROBE_HOLDERS = _SQL["probe_holders"]
_SET_LOCK_TIMEOUT = _SQL["set_lock_timeout"]
_ISOLATION_LEVEL = _SQL["isolation_level"]
_IDENTIFY = _SQL["identify"]

_CURRENT = "read committed"


def insert_tasks(tasks: Sequence[NewTask]) -> Procedure[None]:
    yield from guarded(task_procedures.insert(tasks))


def insert_unique(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int, current: bool
) -> Procedure[JoinedAnswers]:
    """``current`` changes nothing: at a snapshot level a row changed by others can't be locked (40001)."""
    try:
        answers, level = yield from guarded(_all_or_nothing(uniques, wait_seconds, passes))
    except Undecided:
        answers, level = [Unseen()] * len(uniques), ""
    return JoinedAnswers(answers, from_snapshot=level not in ("", _CURRENT), changed_rows_lockable=False)


def unchanged(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """Granted row locks prove it; they are given back at once.

    A row that somebody is writing may have been changed before that, so it isn't known to be unchanged.
    Raises: SerializationFailure where others have changed one of them, so that an error can be chained to it.
    """
    try:
        yield from undone(_probe(task_ids))
    except LockNotAvailable:
        return False
    return True


def uncommitted(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """Needn't be asked: a transaction's own rows are known to be unchanged."""
    yield from ()
    return False


def isolation_level() -> Procedure[str | None]:
    """One further statement: only for the words of an error."""
    result = yield _ISOLATION_LEVEL()
    return str(result.rows[0][0])


def identify() -> Procedure[tuple[object, ...]]:
    """What tells one database from another."""
    result = yield _IDENTIFY()
    return tuple(result.rows[0])


def _all_or_nothing(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int
) -> Procedure[tuple[list[Attempt], str]]:
    answers, level = yield from _bounded(uniques, wait_seconds, passes)
    if any(isinstance(answer, Unseen) for answer in answers):
        raise Undecided("a key changed hands at each pass")
    return answers, level


def _bounded(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int
) -> Procedure[tuple[list[Attempt], str]]:
    """The caller's own bound is put back at the end; on an error the savepoint does it."""
    if wait_seconds is None:
        return (yield from unique_procedures.decide(uniques, None, passes))
    result = yield _SET_LOCK_TIMEOUT(lock_timeout=milliseconds(wait_seconds))
    decided = yield from unique_procedures.decide(uniques, None, passes)
    yield _SET_LOCK_TIMEOUT(lock_timeout=result.rows[0][0])
    return decided


def _probe(task_ids: Sequence[UUID]) -> Procedure[None]:
    yield _PROBE_HOLDERS(ids=list(task_ids))
