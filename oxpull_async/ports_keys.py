"""What a store can do about unique keys beyond plain locks: holds, changes to waiting holders, reruns.

A *hold* stands for a lock where a key has terms of its own. It names a task
row as a lock does, and is this library's alone, so that no other program's
pruning deletes it. A *rerun* is a task that is to be enqueued when the holder
of its key has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.ports import Attempt, NewTask, NewUnique, Outcome, TaskRow

if TYPE_CHECKING:
    from oxpull_async.ports_joined import JoinedAnswers


class Rerun(NamedTuple):
    """A task to be enqueued under ``key`` when ``holder_id`` has ended. A key has one at most: the latest."""

    key: str
    holder_id: UUID
    task: NewTask


class KeyRow(NamedTuple):
    """What a lock or a hold says: the task it names, since when, and the end of its window if it has one."""

    task_id: UUID | None
    created_at: datetime
    held_until: datetime | None


class KeyStore(Protocol):
    """In transactions of the store's own."""

    async def move(self, seen: TaskRow, run_after: datetime | None, *, wait_seconds: float) -> TaskRow | None:
        """Let a READY task run at another time. None if it's not as it was seen: READY, at the same epoch."""
        ...

    async def replace(self, seen: TaskRow, key: str, args: str, kwargs: str, *, wait_seconds: float) -> TaskRow | None:
        """Give a READY task other arguments, and drop the key's rerun; None as with ``move``."""
        ...

    async def recheck_holds(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        """As ``Store.recheck``, for holds."""
        ...

    async def read_key(self, key: str, *, hold: bool) -> KeyRow | None:
        """The key's lock, or its hold; None where there is none."""
        ...

    async def read_rerun(self, key: str) -> Rerun | None:
        """The task that is to be enqueued when the key's holder has ended."""
        ...

    async def release(self, key: str, task_id: UUID | None, *, hold: bool) -> bool:
        """Delete the key's lock (or hold), provided that it still names this task."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[UUID]:
        """As ``Store.settle``, and enqueue in the same transaction the reruns that waited for these tasks."""
        ...

    async def due_reruns(self, *, limit: int) -> Sequence[str]:
        """Keys whose rerun waits for a task that has ended, or is gone."""
        ...

    async def start_rerun(self, key: str) -> bool:
        """Enqueue the key's rerun if it's due: exactly once, whoever else tries. False: there was nothing to do."""
        ...

    async def prune_holds(self, *, now: datetime, limit: int) -> int:
        """Delete holds whose task is settled or gone, and whose window is over."""
        ...


class JoinedKeyStore(Protocol):
    """Inside a caller's transaction; each operation is a savepoint of its own.

    ``wait_seconds`` None leaves the bound on waiting to the caller's database.
    """

    async def insert_holds(
        self,
        uniques: Sequence[NewUnique],
        terms: HoldTerms,
        *,
        now: datetime,
        wait_seconds: float | None,
        passes: int,
        current: bool,
    ) -> JoinedAnswers:
        """As ``JoinedStore.insert_unique``, for holds: each answer ``Inserted`` or a ``Held`` that the terms keep."""
        ...

    async def move(self, seen: TaskRow, run_after: datetime | None, *, wait_seconds: float | None) -> TaskRow | None:
        """As ``KeyStore.move``. Raises: SerializationFailure where the transaction's snapshot is too old for it."""
        ...

    async def replace(
        self, seen: TaskRow, key: str, args: str, kwargs: str, *, wait_seconds: float | None
    ) -> TaskRow | None:
        """As ``KeyStore.replace``. Raises: SerializationFailure."""
        ...

    async def ask_rerun(self, rerun: Rerun, *, wait_seconds: float | None) -> None:
        """Remember the task as the key's rerun, in the place of an earlier one."""
        ...

    async def drop_reruns(self, keys: Sequence[str]) -> None:
        """Forget the reruns of keys that have been enqueued anew: their callers get a later run than they asked for."""
        ...
