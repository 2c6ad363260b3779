"""What a dialect's room offers for unique keys beyond plain locks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.ports import Held, NewUnique, TaskRow
from oxpull_async.ports_keys import KeyRow, Rerun

T = TypeVar("T")


class View(NamedTuple):
    """How a transaction reads. ``punishes``: to touch a row changed since its snapshot costs the whole of it."""

    is_snapshot: bool
    changed_rows_lockable: bool
    punishes: bool


class Stale(NamedTuple):
    """A hold to be pointed at a new task, provided that it still names this one."""

    unique: NewUnique
    task_id: UUID


class HoldProcedures(Protocol):
    """``holds.py`` of a room."""

    def view(self) -> Procedure[View]:
        """How the transaction that surrounds this reads."""
        ...

    def insert_free(
        self, uniques: Sequence[NewUnique], terms: HoldTerms, current: bool
    ) -> Procedure[tuple[set[str], dict[str, Held]]]:
        """Insert the holds of free keys, in key order: those keys, and what is seen of the others."""
        ...

    def read(self, keys: Sequence[str]) -> Procedure[dict[str, Held]]: ...

    def swap(self, stale: Sequence[Stale], terms: HoldTerms) -> Procedure[set[str]]:
        """Compare-and-swap on the task that each hold names: the keys that were won."""
        ...

    def lock_tasks(self, ids: Sequence[UUID]) -> Procedure[dict[UUID, TaskRow]]:
        """The task rows as they are now, under row locks."""
        ...

    def in_savepoint(self, procedure: Procedure[T], wait_seconds: float | None) -> Procedure[T]:
        """The procedure within a savepoint, its waits bounded; the caller's own bound is put back after it."""
        ...

    def in_transaction(self, procedure: Procedure[T], wait_seconds: float) -> Procedure[T]:
        """The procedure with its waits bounded, in a transaction that ends with it."""
        ...

    def prune(self, now: datetime, limit: int) -> Procedure[int]: ...

    def read_key(self, key: str, hold: bool) -> Procedure[KeyRow | None]: ...

    def release(self, key: str, task_id: UUID | None, hold: bool) -> Procedure[bool]: ...


class RevisionProcedures(Protocol):
    """``revisions.py`` of a room: changes to waiting holders, and reruns."""

    def move(self, seen: TaskRow, run_after: datetime | None, *, joined: bool) -> Procedure[TaskRow | None]: ...

    def replace(
        self, seen: TaskRow, key: str, args: str, kwargs: str, *, joined: bool
    ) -> Procedure[TaskRow | None]: ...

    def put_rerun(self, rerun: Rerun) -> Procedure[None]: ...

    def drop_reruns(self, keys: Sequence[str]) -> Procedure[None]: ...

    def read_rerun(self, key: str) -> Procedure[Rerun | None]: ...

    def lock_rerun(self, key: str) -> Procedure[Rerun | None]:
        """The key's rerun under its row lock; None also where somebody else has that."""
        ...

    def lock_reruns_of(self, holder_ids: Sequence[UUID]) -> Procedure[list[Rerun]]:
        """The reruns that wait for these tasks, under row locks, but for those that somebody else has locked."""
        ...

    def due_reruns(self, limit: int) -> Procedure[list[str]]: ...
