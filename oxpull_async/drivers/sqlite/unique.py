"""Unique enqueue: the lock row's primary key decides every race.

Whoever runs these holds the file's write lock, so what is read stays true
until the commit: a key is either inserted or its holder is known, and nothing
is ever ``Unseen``. The bound on the wait for a competitor belongs to the
BEGIN, hence to the pool.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from oxpull_async.core.uniqueness import is_pending
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite import tasks
from oxpull_async.drivers.sqlite._rows import held, lock_array, lock_values
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, TakeOver, Unseen

_SQL = load_statements(__package__, "unique.sql")
_INSERT_LOCK = _SQL["insert_lock"]
_INSERT_LOCKS = _SQL["insert_locks"]
_READ_HOLDERS = _SQL["read_holders"]
_TAKE_OVER_LOCK = _SQL["take_over_lock"]


def insert(
    uniques: Sequence[NewUnique], wait_seconds: float, *, probably_free: bool = False
) -> Procedure[list[Attempt]]:
    """Lock and task of every free key; nothing to roll back for the others. Who is looked at only where it isn't."""
    free = yield from _insert_locks(uniques)
    yield from tasks.insert([unique.task for unique in uniques if unique.key in free])
    taken = [unique.key for unique in uniques if unique.key not in free]
    holders = (yield from read_holders(taken)) if taken else {}
    return [Inserted() if unique.key in free else holders[unique.key] for unique in uniques]


def _insert_locks(uniques: Sequence[NewUnique]) -> Procedure[set[str]]:
    """The keys that were free."""
    if len(uniques) == 1:
        single = yield _INSERT_LOCK(**lock_values(uniques[0]))
        return {uniques[0].key} if single.count else set()
    several = yield _INSERT_LOCKS(locks=lock_array(uniques))
    return {row[0] for row in several.rows}


def insert_together(uniques: Sequence[NewUnique], wait_seconds: float, passes: int) -> Procedure[list[Attempt]]:
    """Every key decided within the transaction that surrounds this, in one pass; stale locks are taken over."""
    answers = dict(zip((u.key for u in uniques), (yield from insert(uniques, wait_seconds)), strict=True))
    taken: list[NewUnique] = []
    for unique in uniques:
        answer = answers[unique.key]
        if isinstance(answer, Held) and not (answer.row is not None and is_pending(answer.row.status)):
            swapped = yield from _swap(TakeOver(unique, answer.task_id))
            answers[unique.key] = Inserted() if swapped else Unseen()
            taken += [unique] if swapped else []
    yield from tasks.insert([unique.task for unique in taken])
    return [answers[unique.key] for unique in uniques]


def read_holders(keys: Sequence[str]) -> Procedure[dict[str, Attempt]]:
    """What the locks of these keys say now; ``Unseen`` for a key without a lock."""
    result = yield _READ_HOLDERS(keys=json.dumps(list(keys)))
    seen = {row[0]: held(row) for row in result.rows}
    return {key: seen.get(key, Unseen()) for key in keys}


def take_over(request: TakeOver, wait_seconds: float) -> Procedure[Attempt]:
    """Point the stale lock at the new task, or say what the lock has become meanwhile."""
    if (yield from _swap(request)):
        yield from tasks.insert([request.unique.task])
        return Inserted()
    (answer,) = yield from insert([request.unique], wait_seconds)
    return answer


def _swap(request: TakeOver) -> Procedure[bool]:
    """Whether the lock still named the stale task, whose row was still not pending."""
    stale = request.stale_task_id
    swapped = yield _TAKE_OVER_LOCK(**lock_values(request.unique), stale_task_id=None if stale is None else stale.hex)
    return swapped.count > 0
