"""Enqueue inside a caller's transaction: what its snapshot can't tell is asked outside of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NoReturn

from oxpull_async.core.uniqueness import MAX_PASSES
from oxpull_async.enqueueing.registry import LOCKS, Registry
from oxpull_async.exceptions import (
    DeadlockDetected,
    LockNotAvailable,
    SerializationFailure,
    StoreError,
    UniqueEnqueueRace,
)
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, Store, Unseen
from oxpull_async.ports_joined import JoinedAnswers, JoinedStore

_LOCK_WAIT = "another transaction has held its key for longer than this one may wait"


class Joining:
    """One call's unique keys, decided within the caller's transaction.

    A key that was decided outside of its snapshot isn't tried inside again.
    """

    def __init__(
        self,
        store: Store,
        joined: JoinedStore,
        uniques: Sequence[NewUnique],
        wait_seconds: float | None,
        registry: Registry = LOCKS,
    ) -> None:
        self._store = store
        self._joined = joined
        self._uniques = uniques
        self._wait_seconds = wait_seconds
        self._registry = registry
        self._fresh: dict[str, Held] = {}
        self._current = False
        self._attempts = 0
        self._change: SerializationFailure | None = None

    async def decide(self) -> Sequence[Inserted | Held]:
        """One verdict for each key, in order: ``Inserted``, or ``Held`` by a pending row.

        Raises: UniqueEnqueueRace, the transaction being as it was before and
        usable; TransactionRolledBack where the server has undone it.
        """
        last: StoreError | None = None
        while self._attempts < MAX_PASSES:
            self._attempts += 1
            try:
                found = await self._attempt()
            except LockNotAvailable as error:
                await self._raise_lock_wait(error)
            except DeadlockDetected as error:
                last = error
            except SerializationFailure as error:
                await self._learn_outside(error)
                last = error
            else:
                if found is not None:
                    return found
        if isinstance(last, DeadlockDetected):
            words = "the database ended a deadlock with it again and again"
            raise await self.race("deadlock", words, "call") from last
        raise await self.race("undecided", "its key changed hands each time it was looked at", "call") from last

    async def _attempt(self) -> Sequence[Inserted | Held] | None:
        """One savepoint. None: what it saw was undecided or out of date, so another is needed."""
        open_ = [unique for unique in self._uniques if unique.key not in self._fresh]
        answers: dict[str, Attempt] = {**self._fresh}
        if open_:
            joined = await self._registry.insert(
                self._joined, open_, wait_seconds=self._wait_seconds, passes=MAX_PASSES, current=self._current
            )
            answers |= {unique.key: _as_ours(a, unique) for unique, a in zip(open_, joined.answers, strict=True)}
            if joined.only_read:
                answers |= await self._compared(answers)
            elif joined.from_snapshot and not self._current:
                answers |= await self._verified(joined, answers)
        verdicts = [answers[unique.key] for unique in self._uniques]
        decided = [verdict for verdict in verdicts if not isinstance(verdict, Unseen)]
        return decided if len(decided) == len(verdicts) else None

    async def _verified(self, joined: JoinedAnswers, answers: Mapping[str, Attempt]) -> Mapping[str, Attempt]:
        """What the snapshot told of keys that others hold, as it is by now; ``Unseen`` if it has to be acted on."""
        doubtful = {
            key: answer
            for key, answer in answers.items()
            if key not in self._fresh and not isinstance(answer, Inserted)
        }
        held = {key: answer for key, answer in doubtful.items() if isinstance(answer, Held)}
        if len(held) == len(doubtful) and await self._unchanged(held.values()):
            return held
        found = {**await self._recheck(list(doubtful))}
        stale = [key for key, answer in found.items() if not self._registry.is_held(answer)]
        if stale and not joined.changed_rows_lockable:
            for key in stale:
                # A task of this very transaction isn't seen outside of it.
                if key not in held or len(doubtful) == 1 or not await self._unchanged([held[key]]):
                    raise await self._changed(found[key]) from self._change
                found[key] = held[key]
            return found
        self._current = bool(stale)
        return {key: Unseen() if key in stale else answer for key, answer in found.items()}

    async def _compared(self, view: Mapping[str, Attempt]) -> Mapping[str, Attempt]:
        """Pending holders as they are by now; ``Unseen`` for keys that may be written, as the snapshot still holds."""
        view = {key: answer for key, answer in view.items() if key not in self._fresh}
        outside = await self._recheck(list(view))
        answers: dict[str, Attempt] = {}
        for key, seen in view.items():
            found = outside[key]
            if isinstance(found, Held) and self._registry.is_held(found):
                answers[key] = self._fresh[key] = found
            elif isinstance(seen, Held) and self._registry.is_held(seen) and await self._unchanged([seen]):
                answers[key] = self._fresh[key] = seen  # a task of this very transaction
            elif seen == found:
                answers[key] = Unseen()
            else:
                raise await self._changed(found)
        self._current = True
        return answers

    async def _unchanged(self, holders: Collection[Held]) -> bool:
        ids = [holder.task_id for holder in holders if holder.task_id is not None]
        try:
            return not ids or await self._joined.unchanged(ids)
        except SerializationFailure as error:
            self._change = error
            return False

    async def _learn_outside(self, error: SerializationFailure) -> None:
        """Others have committed since the snapshot: whose key is held by now needs no row of ours."""
        if not self._store.capabilities.rechecks:
            words = "others have committed since this transaction began to read, so it can't write any more"
            raise await self.race("serialization", words, "transaction") from error
        open_ = [unique.key for unique in self._uniques if unique.key not in self._fresh]
        found = await self._recheck(open_)
        live = {
            key: answer for key, answer in found.items() if isinstance(answer, Held) and self._registry.is_held(answer)
        }
        if not live:
            raise await self._changed(next((held for held in found.values() if held != Unseen()), Unseen())) from error
        self._fresh |= live

    async def _recheck(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        try:
            return await self._registry.recheck(self._store, keys)
        except StoreError as error:
            words = f"its holder could not be read outside this transaction's snapshot ({error})"
            raise await self.race("recheck_failed", words, "transaction") from error

    async def _changed(self, found: Attempt) -> UniqueEnqueueRace:
        """What has happened to the holder, in words."""
        match found:
            case Held(row=None):
                words = "the task that held its key is gone since this transaction's snapshot"
            case Held(row=row) if row is not None:
                words = f"the task that held its key is {row.status} since this transaction's snapshot"
            case _:
                words = "its key was freed, or taken and freed, since this transaction's snapshot"
        return await self.race("snapshot", words, "transaction", holder=found)

    async def _raise_lock_wait(self, error: LockNotAvailable) -> NoReturn:
        raise await self.race("lock_wait", _LOCK_WAIT, "call") from error

    async def race(
        self, reason: str, words: str, retry: Literal["call", "transaction"], holder: Attempt | None = None
    ) -> UniqueEnqueueRace:
        """The error to raise: nothing was written, and the transaction is usable."""
        held = holder if isinstance(holder, Held) else None
        return UniqueEnqueueRace(
            _message(self._uniques[0].task.task_path, words, retry, has_levels=self._store.capabilities.rechecks),
            reason=reason,
            retry=retry,
            attempts=self._attempts,
            isolation_level=await self._level(),
            holder_id=held.task_id if held else None,
            holder_status=held.row.status if held and held.row else None,
        )

    async def _level(self) -> str | None:
        try:
            return await self._joined.isolation_level()
        except StoreError:
            return None  # only words: the error at hand is the one to tell


@contextmanager
def lock_waits_told(task_path: str) -> Iterator[None]:
    """A wait that ended before any key was tried, where the transaction itself has to wait, is a race too."""
    try:
        yield
    except LockNotAvailable as error:
        raise UniqueEnqueueRace(_message(task_path, _LOCK_WAIT, "call"), reason="lock_wait", retry="call") from error


def _message(task_path: str, words: str, retry: Literal["call", "transaction"], *, has_levels: bool = True) -> str:
    if retry == "call":
        rest = "Nothing was written, and the transaction is usable; repeat the enqueue"
    elif has_levels:
        rest = (
            "Nothing was written, and the transaction is usable; "
            "end it and repeat all of it (at READ COMMITTED this doesn't happen)"
        )
    else:
        rest = (
            "Nothing was written; end this transaction and repeat all of it (after BEGIN IMMEDIATE this can't happen)"
        )
    return f"unique enqueue of {task_path} in the caller's transaction: {words}. {rest}."


def _as_ours(answer: Attempt, unique: NewUnique) -> Attempt:
    """An earlier attempt of this very call has written it."""
    if isinstance(answer, Held) and answer.task_id == unique.task.id:
        return Inserted()
    return answer
