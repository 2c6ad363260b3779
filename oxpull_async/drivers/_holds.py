"""Holds: keys with terms of their own, decided by the primary key of their table and a compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._room import Room
from oxpull_async.drivers._room_keys import Stale, View
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, Unseen
from oxpull_async.ports_joined import JoinedAnswers


def insert_joined(
    room: Room,
    uniques: Sequence[NewUnique],
    terms: HoldTerms,
    *,
    now: datetime,
    wait_seconds: float | None,
    passes: int,
    current: bool,
) -> Procedure[JoinedAnswers]:
    """Decide every key within a savepoint of the transaction that surrounds this."""
    view = yield from room.holds.view()
    if view.punishes and not current:
        seen = yield from room.holds.read([unique.key for unique in uniques])
        answers: Sequence[Attempt] = [seen.get(unique.key, Unseen()) for unique in uniques]
        return JoinedAnswers(answers, from_snapshot=True, changed_rows_lockable=False, only_read=True)
    decided = _decide(room, uniques, _Rules(terms, now, passes, view, current and not view.punishes))
    try:
        answers = yield from room.holds.in_savepoint(decided, wait_seconds)
    except Undecided:
        answers = [Unseen()] * len(uniques)
    return JoinedAnswers(answers, from_snapshot=view.is_snapshot, changed_rows_lockable=view.changed_rows_lockable)


class _Rules:
    """What one decision goes by."""

    def __init__(self, terms: HoldTerms, now: datetime, passes: int, view: View, current: bool) -> None:
        self.terms = terms
        self.now = now
        self.passes = passes
        self.view = view
        self.current = current

    def keeps(self, held: Held) -> bool:
        status = None if held.row is None else held.row.status
        return self.terms.is_held(status, held.held_until, self.now)


def _decide(room: Room, uniques: Sequence[NewUnique], rules: _Rules) -> Procedure[list[Attempt]]:
    decided: dict[str, Attempt] = {}
    for _ in range(rules.passes):
        open_ = [unique for unique in uniques if unique.key not in decided]
        decided |= yield from _pass(room, open_, rules)
        if len(decided) == len(uniques):
            break
        if rules.view.is_snapshot and not rules.current:
            break  # a key that was taken since the snapshot will never be seen in it
    else:
        raise Undecided("a key changed hands at each pass")
    return [decided.get(unique.key, Unseen()) for unique in uniques]


def _pass(room: Room, uniques: Sequence[NewUnique], rules: _Rules) -> Procedure[dict[str, Attempt]]:
    """One look at every key: free ones are inserted, holders found, stale holds taken over."""
    won, seen = yield from room.holds.insert_free(uniques, rules.terms, rules.current)
    kept: dict[str, Attempt] = {key: held for key, held in seen.items() if rules.keeps(held)}
    stale = {key: held for key, held in seen.items() if key not in kept}
    kept |= yield from _revived(room, stale, rules)
    taken = [
        Stale(unique, held.task_id)
        for unique in uniques
        if unique.key not in kept and (held := stale.get(unique.key)) and held.task_id is not None
    ]
    if taken:
        won |= yield from room.holds.swap(taken, rules.terms)
    new = [unique.task for unique in uniques if unique.key in won]
    if new:
        yield from room.tasks.insert(new)
    return kept | dict.fromkeys(won, Inserted())


def _revived(room: Room, stale: Mapping[str, Held], rules: _Rules) -> Procedure[dict[str, Attempt]]:
    """Holders that are being retried at this moment, and keep their keys.

    A running one isn't locked: that would be in the way of its worker. If it goes
    back to READY meanwhile, that is as if it had done so after the key was taken over.
    """
    ended = [held.row.id for held in stale.values() if held.row and held.row.status != TaskStatus.RUNNING]
    if rules.current or not ended:
        return {}
    rows = yield from room.holds.lock_tasks(ended)
    now = {
        key: Held(held.task_id, rows[held.task_id], held.held_until)
        for key, held in stale.items()
        if held.task_id in rows
    }
    return {key: held for key, held in now.items() if rules.keeps(held)}
