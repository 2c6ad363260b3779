"""The algorithm alone, over a store and a transaction that say what they're told to say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from oxpull_async.core.uniqueness import MAX_PASSES
from oxpull_async.enqueueing.joined import Joining, lock_waits_told
from oxpull_async.exceptions import (
    ConnectionLost,
    DeadlockDetected,
    LockNotAvailable,
    OxpullError,
    SerializationFailure,
    StoreError,
    TransactionRolledBack,
    UniqueEnqueueRace,
)
from oxpull_async.ports import Attempt, Held, Inserted, NewTask, NewUnique, TaskRow, Unseen
from oxpull_async.ports_batches import JoinedBatchStore
from oxpull_async.ports_joined import JoinedAnswers
from tests.conformance.rows import new_task, new_unique

Said = Sequence[Attempt] | OxpullError


@dataclass
class Transaction:
    """Answers each attempt with the next of its `script`, and each question for changes with `is_unchanged`."""

    script: list[Said]
    from_snapshot: bool = False
    changed_rows_lockable: bool = False
    is_unchanged: bool | StoreError = True
    level: str | StoreError = "repeatable read"
    tried: list[tuple[list[str], bool]] = field(default_factory=list)
    asked: list[list[UUID]] = field(default_factory=list)

    @property
    def batches(self) -> JoinedBatchStore:
        raise NotImplementedError

    @asynccontextmanager
    async def call(self, *, several: bool) -> AsyncIterator[None]:
        yield

    async def insert_tasks(self, tasks: Sequence[NewTask]) -> None:
        raise NotImplementedError

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float | None, passes: int, current: bool
    ) -> JoinedAnswers:
        self.tried.append(([unique.key for unique in uniques], current))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, OxpullError):
            raise said
        return JoinedAnswers(said, self.from_snapshot, self.changed_rows_lockable)

    async def unchanged(self, task_ids: Sequence[UUID]) -> bool:
        self.asked.append(list(task_ids))
        if isinstance(self.is_unchanged, StoreError):
            raise self.is_unchanged
        return self.is_unchanged

    async def isolation_level(self) -> str | None:
        if isinstance(self.level, StoreError):
            raise self.level
        return self.level


@dataclass
class Outside:
    """What is committed, as a recheck would see it."""

    found: Mapping[str, Attempt] | StoreError = field(default_factory=dict)
    rechecks: bool = True
    asked: list[list[str]] = field(default_factory=list)

    @property
    def capabilities(self) -> Any:
        return SimpleNamespace(rechecks=self.rechecks)

    async def recheck(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        self.asked.append(list(keys))
        if isinstance(self.found, StoreError):
            raise self.found
        return {key: self.found.get(key, Unseen()) for key in keys}


def joining(transaction: Transaction, uniques: Iterable[NewUnique], outside: Outside | None = None) -> Joining:
    store: Any = outside or Outside()
    joined: Any = transaction
    return Joining(store, joined, list(uniques), None)


def held(status: str, *, row: bool = True) -> Held:
    """A holder as some read has it."""
    task = new_task()
    names = dict.fromkeys(
        ("return_value", "started_at", "last_attempted_at", "finished_at", "locked_by", "locked_at", "lease_expires_at")
    )
    columns = {**{name: getattr(task, name) for name in task._fields}, **names, "status": status, "attempts": 0}
    columns |= {"errors": "[]", "worker_ids": "[]", "lease_epoch": 0}
    return Held(task.id, TaskRow(**columns) if row else None)


async def test_what_was_decided_at_once_is_asked_about_no_more():
    unique, holder = new_unique("a"), held("READY")
    transaction, outside = Transaction([[Inserted(), holder]]), Outside()

    verdicts = await joining(transaction, [unique, new_unique("b")], outside).decide()

    assert verdicts == [Inserted(), holder]
    assert (transaction.asked, outside.asked) == ([], [])


async def test_five_passes_and_no_more_are_tried():
    transaction = Transaction([[Unseen()]], level="read committed")

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(transaction, [new_unique("a")]).decide()

    assert len(transaction.tried) == MAX_PASSES == 5
    assert (caught.value.reason, caught.value.retry, caught.value.attempts) == ("undecided", "call", 5)
    assert caught.value.__cause__ is None


async def test_deadlocks_are_repeated_then_told_with_the_last_of_them():
    deadlock = DeadlockDetected("deadlock")
    transaction = Transaction([deadlock])

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(transaction, [new_unique("a")]).decide()

    assert len(transaction.tried) == MAX_PASSES
    assert (caught.value.reason, caught.value.retry) == ("deadlock", "call")
    assert caught.value.__cause__ is deadlock


async def test_a_deadlock_that_does_not_come_again_costs_nothing():
    transaction = Transaction([DeadlockDetected("deadlock"), [Inserted()]])

    assert await joining(transaction, [new_unique("a")]).decide() == [Inserted()]


async def test_a_lock_wait_is_not_repeated():
    error = LockNotAvailable("lock timeout")
    transaction = Transaction([error])

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(transaction, [new_unique("a")]).decide()

    assert len(transaction.tried) == 1
    assert (caught.value.reason, caught.value.retry) == ("lock_wait", "call")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ConnectionLost("lost"), TransactionRolledBack("gone"), StoreError("disk full")])
async def test_what_no_look_can_mend_is_raised_as_it_is(error: OxpullError):
    with pytest.raises(type(error)) as caught:
        await joining(Transaction([error]), [new_unique("a")]).decide()

    assert caught.value is error


async def test_holders_of_a_snapshot_that_are_unchanged_are_believed():
    holder, outside = held("READY"), Outside()
    transaction = Transaction([[holder]], from_snapshot=True)

    assert await joining(transaction, [new_unique("a")], outside).decide() == [holder]

    assert transaction.asked == [[holder.task_id]]
    assert outside.asked == []


async def test_holders_of_a_snapshot_that_were_changed_are_returned_as_they_are_now():
    seen, now, unique = held("READY"), held("RUNNING"), new_unique("a")
    transaction = Transaction([[seen]], from_snapshot=True, is_unchanged=False)

    assert await joining(transaction, [unique], Outside({unique.key: now})).decide() == [now]


@pytest.mark.parametrize(
    ("now", "words", "status"),
    [
        (held("SUCCESSFUL"), "is SUCCESSFUL since", "SUCCESSFUL"),
        (held("READY", row=False), "is gone since", None),
        (Unseen(), "was freed", None),
    ],
    ids=["settled", "row gone", "lock gone"],
)
async def test_a_holder_that_let_go_since_the_snapshot_is_a_race_with_its_reason(
    now: Attempt, words: str, status: str | None
):
    failure, unique = SerializationFailure("changed"), new_unique("a")
    transaction = Transaction([[held("READY")]], from_snapshot=True, is_unchanged=failure)

    with pytest.raises(UniqueEnqueueRace, match=words) as caught:
        await joining(transaction, [unique], Outside({unique.key: now})).decide()

    assert (caught.value.reason, caught.value.retry) == ("snapshot", "transaction")
    assert caught.value.holder_status == status
    assert caught.value.holder_id == (now.task_id if isinstance(now, Held) else None)
    assert caught.value.isolation_level == "repeatable read"
    assert caught.value.__cause__ is failure


async def test_where_changed_rows_can_be_locked_a_holder_that_let_go_is_looked_at_anew():
    unique = new_unique("a")
    transaction = Transaction(
        [[held("READY")], [Inserted()]], from_snapshot=True, changed_rows_lockable=True, is_unchanged=False
    )

    assert await joining(transaction, [unique], Outside({unique.key: held("FAILED")})).decide() == [Inserted()]

    assert transaction.tried == [([unique.key], False), ([unique.key], True)]


async def test_what_this_very_call_has_written_is_new_though_a_later_look_finds_it():
    mine, other = new_unique("a"), new_unique("b")
    own = Held(mine.task.id, held("READY").row)
    transaction = Transaction(
        [[Inserted(), held("READY")], [own, Inserted()]],
        from_snapshot=True, changed_rows_lockable=True, is_unchanged=False,
    )  # fmt: skip

    assert await joining(transaction, [mine, other], Outside()).decide() == [Inserted(), Inserted()]


async def test_a_winner_beyond_the_snapshot_is_learnt_outside_and_not_tried_again():
    theirs, mine, now = new_unique("a"), new_unique("b"), held("READY")
    transaction = Transaction([SerializationFailure("40001"), [Inserted()]], from_snapshot=True)

    verdicts = await joining(transaction, [theirs, mine], Outside({theirs.key: now})).decide()

    assert verdicts == [now, Inserted()]
    assert [keys for keys, _ in transaction.tried] == [[theirs.key, mine.key], [mine.key]]


async def test_a_serialization_failure_that_no_pending_holder_explains_is_a_race():
    failure, unique = SerializationFailure("40001"), new_unique("a")
    gone = held("FAILED")

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(Transaction([failure]), [new_unique("0"), unique], Outside({unique.key: gone})).decide()

    assert caught.value.__cause__ is failure
    assert (caught.value.retry, caught.value.holder_id) == ("transaction", gone.task_id)


async def test_where_nothing_can_be_asked_outside_a_serialization_failure_is_for_the_whole_transaction():
    failure, outside = SerializationFailure("517"), Outside(rechecks=False)

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(Transaction([failure]), [new_unique("a")], outside).decide()

    assert (caught.value.reason, caught.value.retry) == ("serialization", "transaction")
    assert caught.value.__cause__ is failure
    assert outside.asked == []


async def test_a_recheck_that_fails_is_a_race_chained_to_its_error():
    lost = ConnectionLost("refused")
    transaction = Transaction([[held("READY")]], from_snapshot=True, is_unchanged=False)

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(transaction, [new_unique("a")], Outside(lost)).decide()

    assert (caught.value.reason, caught.value.retry) == ("recheck_failed", "transaction")
    assert caught.value.__cause__ is lost


async def test_a_level_that_cannot_be_told_hides_no_race():
    transaction = Transaction([LockNotAvailable("timeout")], level=StoreError("aborted"))

    with pytest.raises(UniqueEnqueueRace) as caught:
        await joining(transaction, [new_unique("a")]).decide()

    assert caught.value.isolation_level is None


def test_a_wait_before_any_key_was_tried_is_a_race_too():
    error = LockNotAvailable("database is locked")

    with pytest.raises(UniqueEnqueueRace, match="repeat the enqueue") as caught, lock_waits_told("proof.send"):
        raise error

    assert caught.value.__cause__ is error
