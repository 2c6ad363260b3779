"""Inside a caller's transaction: savepoints, whatever the transaction has read before.

A transaction here reads as of its first statement, and may write only if
nobody has written since: so what is decided after a write is decided on what
is committed, and a decision on something older is refused by SQLite itself
(SerializationFailure). How long the first write waits for other connections
is the caller's own ``busy_timeout``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite import tasks as task_procedures
from oxpull_async.drivers.sqlite import unique as unique_procedures
from oxpull_async.ports import Attempt, NewTask, NewUnique, Unseen
from oxpull_async.ports_joined import JoinedAnswers

T = TypeVar("T")

_SQL = load_statements(__package__, "unique.sql")
_IDENTIFY = _SQL["identify"]


def insert_tasks(tasks: Sequence[NewTask]) -> Procedure[None]:
    yield from guarded(task_procedures.insert(tasks))


def insert_unique(
    uniques: Sequence[NewUnique], wait_seconds: float | None, passes: int, current: bool
) -> Procedure[JoinedAnswers]:
    """``current`` changes nothing: who has written reads what is committed."""
    answers: Sequence[Attempt]
    try:
        answers = yield from guarded(_all_or_nothing(uniques, passes))
    except Undecided:
        answers = [Unseen()] * len(uniques)
    return JoinedAnswers(answers, from_snapshot=False, changed_rows_lockable=True)


def unchanged(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """Never asked, for no answer comes from a snapshot."""
    yield from ()
    return True


def uncommitted(task_ids: Sequence[UUID]) -> Procedure[bool]:
    """Never asked either."""
    yield from ()
    return False


def isolation_level() -> Procedure[str | None]:
    """SQLite has but one."""
    yield from ()
    return None


def identify() -> Procedure[tuple[object, ...]]:
    """What tells one database from another."""
    result = yield _IDENTIFY()
    return tuple(path for _, name, path in result.rows if name == "main")


def telling(procedure: Procedure[T]) -> Procedure[T]:
    """There are no notifications."""
    return procedure


def _all_or_nothing(uniques: Sequence[NewUnique], passes: int) -> Procedure[list[Attempt]]:
    answers = yield from unique_procedures.insert_together(uniques, 0, passes)
    if any(isinstance(answer, Unseen) for answer in answers):
        raise Undecided("a key changed hands")
    return answers
