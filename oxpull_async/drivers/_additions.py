"""Members are added once, also where the reply to a COMMIT is lost.

Whoever adds knows the answer before the COMMIT. If the reply doesn't come,
that answer is kept, and its members tell whether it was committed: their rows
may have run, been deleted, or lost their keys to others meanwhile, but they
stay members for as long as there is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._room import Pool, Room
from oxpull_async.exceptions import ConnectionLost, UniqueViolation
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, Unseen
from oxpull_async.ports_batches import Added, Addition, BatchClosed


class Additions:
    """``ports_batches.BatchStore.add``, over any dialect's room."""

    def __init__(self, room: Room, get_pool: Callable[[], Pool]) -> None:
        self._room = room
        self._get_pool = get_pool

    async def add(
        self, addition: Addition, unheard: list[Added], *, wait_seconds: float, passes: int
    ) -> Added | BatchClosed:
        """Raises: UniqueViolation where a task's id exists, but for one that a try of this addition has written."""
        if done := await self._committed(addition, unheard):
            return done
        try:
            answer = await self._try(addition, unheard, wait_seconds, passes)
        except UniqueViolation:
            if done := await self._committed(addition, unheard):
                return done
            raise
        return answer if isinstance(answer, Added) else (await self._committed(addition, unheard) or answer)

    async def _try(
        self, addition: Addition, unheard: list[Added], wait_seconds: float, passes: int
    ) -> Added | BatchClosed:
        decided: list[Added] = []
        try:
            if addition.uniques:
                return await self._add_uniques(addition, unheard, decided, wait_seconds, passes)
            decided.append(Added())
            return await self._add_tasks(addition, wait_seconds)
        except ConnectionLost:
            unheard += decided
            raise

    async def _add_tasks(self, addition: Addition, wait_seconds: float) -> Added | BatchClosed:
        procedure = self._room.batches.add_tasks(addition.batch_id, addition.tasks, addition.added_at, wait_seconds)
        return await self._get_pool().write(procedure, wait_seconds=wait_seconds) or Added()

    async def _add_uniques(
        self, addition: Addition, unheard: Sequence[Added], decided: list[Added], wait_seconds: float, passes: int
    ) -> Added | BatchClosed:
        procedure = self._adding_uniques(addition, unheard, decided, wait_seconds, passes)
        try:
            return await self._get_pool().transact(procedure, wait_seconds=wait_seconds)
        except _Instead as instead:
            return instead.answer
        except Undecided:
            return Added([Unseen()] * len(addition.uniques))

    def _adding_uniques(
        self, addition: Addition, unheard: Sequence[Added], decided: list[Added], wait_seconds: float, passes: int
    ) -> Procedure[Added]:
        """Locks of keys come before the batch's row, as everywhere."""
        in_order = sorted(addition.uniques, key=lambda unique: unique.key)
        found = yield from self._room.unique.insert_together(in_order, wait_seconds, passes)
        if any(isinstance(answer, Unseen) for answer in found):
            raise Undecided("a key changed hands at each pass")
        by_key = dict(zip((unique.key for unique in in_order), found, strict=True))
        answers = [by_key[unique.key] for unique in addition.uniques]
        if unheard:
            yield from self._refuse_to_repeat(addition, unheard, wait_seconds)
        ids = sorted({task_id_of(unique, answer) for unique, answer in zip(addition.uniques, answers, strict=True)})
        repeated = yield from self._room.batches.add_members(addition.batch_id, ids, addition.added_at, wait_seconds)
        if isinstance(repeated, BatchClosed):
            raise _Instead(repeated)
        answer = Added(answers, repeated)
        decided.append(answer)
        return answer

    def _refuse_to_repeat(self, addition: Addition, unheard: Sequence[Added], wait_seconds: float) -> Procedure[None]:
        """A try that was under way still when we looked has ended once the batch is claimed."""
        if closed := (yield from self._room.batches.claim(addition.batch_id, wait_seconds)):
            raise _Instead(closed)
        if done := _answer_of(addition, unheard, (yield from self._members(addition, unheard))):
            raise _Instead(done)

    async def _committed(self, addition: Addition, unheard: Sequence[Added]) -> Added | None:
        """What one of these tries would have answered, if it was committed."""
        return await self._get_pool().read(self._looking(addition, unheard)) if unheard else None

    def _looking(self, addition: Addition, unheard: Sequence[Added]) -> Procedure[Added | None]:
        there = yield from self._members(addition, unheard)
        if not there:  # the batch may be gone, and its members' rows still be there
            there = {row.id for row in (yield from self._room.tasks.get_many(_new_ids(addition)))}
        return _answer_of(addition, unheard, there)

    def _members(self, addition: Addition, unheard: Sequence[Added]) -> Procedure[set[UUID]]:
        """Those that a try has written: under ids that are ours alone, or with the instant of this addition."""
        ids = sorted({task_id for answer in unheard for task_id in _written(addition, answer)})
        new = set(_new_ids(addition))
        found = (yield from self._room.batches.members_among(addition.batch_id, ids)) if ids else {}
        return {task_id for task_id, added_at in found.items() if task_id in new or added_at == addition.added_at}


class _Instead(Undecided):
    """Has what was written so far rolled back, since there is another answer."""

    def __init__(self, answer: Added | BatchClosed) -> None:
        super().__init__("the batch is closed, or an earlier try was committed")
        self.answer = answer


def task_id_of(unique: NewUnique, answer: Attempt) -> UUID:
    """Whose row holds the key now: the new one, or the pending one that was found."""
    if isinstance(answer, Held):
        assert answer.task_id is not None
        return answer.task_id
    assert isinstance(answer, Inserted)
    return unique.task.id


def _new_ids(addition: Addition) -> list[UUID]:
    return [task.id for task in addition.tasks] + [unique.task.id for unique in addition.uniques]


def _written(addition: Addition, answer: Added) -> set[UUID]:
    """The members that this answer has brought."""
    uniques = zip(addition.uniques, answer.answers, strict=True)
    ids = {task_id_of(unique, found) for unique, found in uniques} - answer.repeated
    return ids | {task.id for task in addition.tasks}


def _answer_of(addition: Addition, unheard: Sequence[Added], there: AbstractSet[UUID]) -> Added | None:
    """One was committed at most: the one whose members are there."""
    best = max(unheard, key=lambda answer: len(there & _written(addition, answer)))
    return best if there & _written(addition, best) else None
