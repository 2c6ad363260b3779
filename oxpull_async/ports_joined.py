"""The part of a store that works inside a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from oxpull_async.ports import Attempt, NewTask, NewUnique
from oxpull_async.ports_batches import JoinedBatchStore
from oxpull_async.ports_keys import JoinedKeyStore


@dataclass(frozen=True, slots=True)
class JoinedAnswers:
    """One answer for each key, as a caller's transaction sees it.

    ``from_snapshot``: a pending ``Held`` may be out of date, since the
    transaction reads as of its beginning. ``changed_rows_lockable``: rows
    that others have changed since can still be read and locked as they are now.
    ``only_read``: nothing was tried, since the server undoes a whole
    transaction that touches a changed row; the answers are what the snapshot
    has, and the call is repeated with ``current`` once that is known to hold.
    """

    answers: Sequence[Attempt]
    from_snapshot: bool
    changed_rows_lockable: bool
    only_read: bool = False


class JoinedStore(Protocol):
    """The part of a store that works inside a caller's transaction, on the caller's own connection.

    Every call is one savepoint: an error leaves the transaction as it was
    before the call, and TransactionRolledBack says that the server has undone
    all of it. Nothing here begins, commits, rolls back or retries it.
    """

    @property
    def batches(self) -> JoinedBatchStore:
        """What it can do about batches."""
        ...

    @property
    def keys(self) -> JoinedKeyStore:
        """What it can do about unique keys beyond plain locks."""
        ...

    def call(self, *, several: bool) -> AbstractAsyncContextManager[None]:
        """What surrounds the operations of one call: calls on one connection wait for one another.

        With ``several``, one savepoint around all of them, so that an error
        undoes them together. Raises: TransactionRequired, WrongDatabase.
        """
        ...

    async def insert_tasks(self, tasks: Sequence[NewTask]) -> None:
        """Insert all rows or none."""
        ...

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float | None, passes: int, current: bool
    ) -> JoinedAnswers:
        """Decide every key, as ``Store.insert_unique_together`` does, within the caller's transaction.

        ``wait_seconds`` None leaves the bound on waiting to the caller's
        database. ``current`` reads holders under row locks, as they are now
        and not as the snapshot has them. An ``Unseen`` among the answers
        means that nothing was written.
        """
        ...

    async def unchanged(self, task_ids: Sequence[UUID]) -> bool:
        """Whether these rows are known to be as the snapshot has them, or at least not committed otherwise."""
        ...

    async def isolation_level(self) -> str | None:
        """The transaction's isolation level in the server's own word."""
        ...
