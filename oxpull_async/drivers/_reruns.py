"""Reruns: what waits for a holder's end is enqueued then, exactly once, whoever comes to it first.

The rerun's row decides: whoever has locked and deleted it enqueues its task
in the same transaction. A rerun that can't be started at once stays for the
next sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from oxpull_async.core.uniqueness import MAX_PASSES, LateRerun, decide_late_rerun, is_pending
from oxpull_async.drivers._procedure import Procedure, Result, Step, Undecided, changed
from oxpull_async.drivers._room import Room
from oxpull_async.drivers._savepoints import SavepointDeed, released, roll_back, savepoint
from oxpull_async.exceptions import ConnectionLost, DeadlockDetected, StoreError, TransactionRolledBack
from oxpull_async.ports import Held, Inserted, NewUnique, Outcome, TaskRow
from oxpull_async.ports_keys import Rerun

_WAIT_SECONDS: Final = 1.0
_SAVEPOINT: Final = "oxpull_rerun"  # always the same, so that drivers prepare its statements once
_OWN = frozenset({"begin", "commit"})


def settle(room: Room, outcomes: Sequence[Outcome]) -> Procedure[Sequence[UUID]]:
    """Within a transaction: write outcomes, and enqueue what waited for those tasks."""
    landed = yield from changed(room.outcomes.settle(outcomes), _unless_own)
    written = set(landed)
    ended = [outcome.id for outcome in outcomes if outcome.id in written and outcome.settlement.finishes]
    if ended:
        for rerun in (yield from room.revisions.lock_reruns_of(ended)):
            yield from _unless_hindered(_start(room, rerun))
    return landed


def start_due(room: Room, key: str) -> Procedure[bool]:
    """Within a transaction: enqueue the key's rerun if the task that it waits for has ended."""
    rerun = yield from room.revisions.lock_rerun(key)
    if rerun is None:
        return False
    holder = yield from room.tasks.get(rerun.holder_id)
    if holder is not None and is_pending(holder.status):
        return False
    return (yield from _start(room, rerun))


def _start(room: Room, rerun: Rerun) -> Procedure[bool]:
    """Whether a task was enqueued, or a waiting one took the rerun's arguments."""
    yield from room.revisions.drop_reruns([rerun.key])
    for _ in range(MAX_PASSES):
        unique = NewUnique(rerun.key, rerun.task)
        (answer,) = yield from room.unique.insert_together([unique], _WAIT_SECONDS, MAX_PASSES)
        if isinstance(answer, Inserted):
            return True
        if isinstance(answer, Held) and answer.row is not None:
            settled = yield from _give_way(room, rerun, answer.row)
            if settled is not None:
                return settled
    raise Undecided("the rerun's key changed hands each time it was looked at")


def _give_way(room: Room, rerun: Rerun, holder: TaskRow) -> Procedure[bool | None]:
    """The key has another holder by now. None: it's not as it was any more."""
    match decide_late_rerun(rerun.task.enqueued_at, holder.status, holder.enqueued_at):
        case LateRerun.DROP:
            return False
        case LateRerun.FOLLOW:
            yield from room.revisions.put_rerun(rerun._replace(holder_id=holder.id))
            return False
        case LateRerun.REPLACE:
            task = rerun.task
            replaced = yield from room.revisions.replace(holder, rerun.key, task.args, task.kwargs, joined=False)
            return None if replaced is None else True


def _unless_hindered(procedure: Procedure[Any]) -> Procedure[None]:
    """Within a savepoint: what hinders a rerun must not keep outcomes from being written."""
    yield savepoint(SavepointDeed.OPEN, _SAVEPOINT)
    try:
        yield from procedure
    except ConnectionLost:
        raise
    except StoreError as error:
        try:
            yield from roll_back(_SAVEPOINT, error)
        except TransactionRolledBack as lost:
            raise DeadlockDetected(str(lost)) from error
        return
    yield from released(_SAVEPOINT)


def _unless_own(step: Step) -> Step | Result:
    """BEGIN and COMMIT of a procedure's own have been done by whoever began the transaction."""
    return Result((), 0) if step.statement.name in _OWN else step
