"""Unique enqueue in transactions of our own: insert, or find the holder, or take a stale lock over."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.uniqueness import MAX_PASSES, is_pending
from oxpull_async.exceptions import (
    DeadlockDetected,
    LockNotAvailable,
    SerializationFailure,
    StoreError,
    UniqueEnqueueRace,
    UniqueViolation,
)
from oxpull_async.ports import (
    Attempt,
    Held,
    Inserted,
    NewTask,
    NewUnique,
    Store,
    TakeOver,
    TaskRow,
    Unseen,
)


async def insert_unique(
    store: Store,
    unique: NewUnique,
    *,
    wait_seconds: float,
    first: Attempt | None = None,
    lock_seconds: float = math.inf,
) -> Inserted | Held:
    """Decide one key: ``Inserted``, or ``Held`` by a pending row.

    ``first`` is an answer that a shared statement has given already. Each
    pass is transactions of its own; nothing is held between them.
    Raises: UniqueEnqueueRace after five passes, or when a competitor's open
    transaction outlasts ``wait_seconds``, or ``lock_seconds`` at once.
    """
    deadline = _Deadline(time.monotonic() + wait_seconds, lock_seconds)
    answer = first
    for attempt in range(1, MAX_PASSES + 1):
        try:
            answer = await _pass(store, unique, deadline, answer)
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(unique.task.task_path, error, attempt)
        if (decided := verdict(answer, unique)) is not None:
            return decided
        answer = None
    raise UniqueEnqueueRace(
        f"unique enqueue of {unique.task.task_path} was undecided after {MAX_PASSES} attempts: its key changed hands "
        "each time it was looked at. Nothing was written; enqueue again.",
        reason="undecided",
        retry="call",
        attempts=MAX_PASSES,
    )


def verdict(answer: Attempt | None, unique: NewUnique) -> Inserted | Held | None:
    """The answer, if it decides the key: inserted, or held by a pending row."""
    if answer is None or isinstance(answer, Unseen):
        return None
    answer = _as_ours(answer, unique)
    return answer if isinstance(answer, Inserted) or (isinstance(answer, Held) and _is_live(answer)) else None


async def insert_uniques_together(
    store: Store, uniques: Sequence[NewUnique], *, wait_seconds: float, lock_seconds: float = math.inf
) -> Sequence[Inserted | Held]:
    """Decide many different keys in one transaction: all rows or none. Raises: UniqueEnqueueRace."""
    deadline = _Deadline(time.monotonic() + wait_seconds, lock_seconds)
    try:
        return await _decide_together(store, uniques, deadline)
    except UniqueViolation:
        written = await rows_written_before(store, [unique.task for unique in uniques])
        if not written:
            raise
    rest = [unique for unique in uniques if unique.task.id not in written]
    found = {u.key: a for u, a in zip(rest, await _decide_together(store, rest, deadline), strict=True)} if rest else {}
    return [found.get(unique.key, Inserted()) for unique in uniques]


async def rows_written_before(store: Store, tasks: Sequence[NewTask]) -> Mapping[UUID, TaskRow]:
    """Which of these new rows exist already.

    Their ids are ours alone: a try whose reply was lost had been committed, all of it, and what it wrote has even
    run since, so that its key is free again.
    """
    return {row.id: row for row in await retrying(lambda: store.get_tasks([task.id for task in tasks]))}


async def _decide_together(
    store: Store, uniques: Sequence[NewUnique], deadline: _Deadline
) -> Sequence[Inserted | Held]:
    task_path = uniques[0].task.task_path

    async def decide() -> Sequence[Attempt]:
        seconds = deadline.lock_seconds()
        return await store.insert_unique_together(uniques, wait_seconds=seconds, passes=MAX_PASSES)

    for attempt in range(1, MAX_PASSES + 1):
        try:
            answers = await retrying(decide, deadline=deadline.at)
        except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
            raise_race(task_path, error, attempt)
        decided = [_as_ours(answer, unique) for answer, unique in zip(answers, uniques, strict=True)]
        kept = [answer for answer in decided if not isinstance(answer, Unseen)]
        if len(kept) == len(uniques):
            return kept
    raise UniqueEnqueueRace(
        f"unique enqueue of {len(uniques)} calls of {task_path} was undecided after {MAX_PASSES} attempts: some of "
        "their keys changed hands each time. Nothing was written; enqueue them again.",
        reason="undecided",
        retry="call",
        attempts=MAX_PASSES,
    )


def row_of(task: NewTask) -> TaskRow:
    """The stored row of a task that was just inserted, for its duplicates in the same statement."""
    return TaskRow(
        id=task.id,
        task_path=task.task_path,
        args=task.args,
        kwargs=task.kwargs,
        queue_name=task.queue_name,
        priority=task.priority,
        takes_context=task.takes_context,
        backend_name=task.backend_name,
        status=TaskStatus.READY,
        run_after=task.run_after,
        attempts=0,
        max_attempts=task.max_attempts,
        return_value=None,
        errors="[]",
        worker_ids="[]",
        enqueued_at=task.enqueued_at,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        locked_by=None,
        locked_at=None,
        lease_expires_at=None,
        lease_epoch=0,
    )


async def insert_shared(
    store: Store, uniques: Sequence[NewUnique], *, wait_seconds: float, probably_free: bool = False
) -> Sequence[Attempt]:
    """One try for calls of many callers in one statement; the same key among them is tried once."""
    if len(uniques) == 1:
        return await store.insert_unique(uniques, wait_seconds=wait_seconds, probably_free=probably_free)
    first: dict[str, NewUnique] = {}
    for unique in uniques:
        first.setdefault(unique.key, unique)
    answers = await store.insert_unique(list(first.values()), wait_seconds=wait_seconds, probably_free=probably_free)
    by_key = dict(zip(first, answers, strict=True))
    return [_shared_answer(unique, first, by_key) for unique in uniques]


def _shared_answer(unique: NewUnique, first: Mapping[str, NewUnique], answers: Mapping[str, Attempt]) -> Attempt:
    winner = first[unique.key]
    answer = answers[unique.key]
    if isinstance(answer, Inserted) and winner is not unique:
        return Held(winner.task.id, row_of(winner.task))
    return answer


async def _pass(store: Store, unique: NewUnique, deadline: _Deadline, answer: Attempt | None) -> Attempt:
    """One look at the key: insert if it's free, else find the holder, else take its lock over."""
    if answer is None:
        answer = await _try(store, unique, deadline)
    answer = _as_ours(answer, unique)
    if isinstance(answer, Unseen):
        answer = _as_ours(await retrying(lambda: store.read_holder(unique.key), deadline=deadline.at), unique)
    if isinstance(answer, Held) and not _is_live(answer):
        stale = TakeOver(unique, answer.task_id)
        answer = _as_ours(await _take_over(store, stale, deadline), unique)
    return answer


async def _try(store: Store, unique: NewUnique, deadline: _Deadline) -> Attempt:
    async def insert() -> Attempt:
        (answer,) = await store.insert_unique([unique], wait_seconds=deadline.lock_seconds())
        return answer

    return await _unless_written(store, unique, retrying(insert, deadline=deadline.at))


async def _take_over(store: Store, stale: TakeOver, deadline: _Deadline) -> Attempt:
    async def take_over() -> Attempt:
        return await store.take_over(stale, wait_seconds=deadline.lock_seconds())

    return await _unless_written(store, stale.unique, retrying(take_over, deadline=deadline.at))


async def _unless_written(store: Store, unique: NewUnique, attempt: Awaitable[Attempt]) -> Attempt:
    """The attempt's answer. An id of ours that exists already was committed by a try whose reply was lost."""
    try:
        return await attempt
    except UniqueViolation:
        if await store.get_task(unique.task.id) is None:
            raise
        return Inserted()


@dataclass(frozen=True, slots=True)
class _Deadline:
    """The instant (monotonic) by which a call is decided, and how long it may wait for one lock."""

    at: float
    most: float

    def lock_seconds(self) -> float:
        return min(self.most, max(self.at - time.monotonic(), 0.001))


def _as_ours(answer: Attempt, unique: NewUnique) -> Attempt:
    """A lock that names our own new id was written by an earlier try of ours, known or not."""
    if isinstance(answer, Held) and answer.task_id == unique.task.id:
        return Inserted()
    return answer


def _is_live(held: Held) -> bool:
    return held.row is not None and is_pending(held.row.status)


def raise_race(task_path: str, error: StoreError, attempts: int) -> NoReturn:
    if isinstance(error, LockNotAvailable):
        reason, words = "lock_wait", "another transaction has held its key for longer than this call may wait"
    elif isinstance(error, DeadlockDetected):
        reason, words = "deadlock", "the database ended a deadlock with it again and again"
    else:
        reason, words = "serialization", "the database couldn't serialise it with others again and again"
    raise UniqueEnqueueRace(
        f"unique enqueue of {task_path}: {words}. Nothing was written; enqueue again once the other is done.",
        reason=reason,
        retry="call",
        attempts=attempts,
    ) from error
