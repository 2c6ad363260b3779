"""Plain enqueue: rows without a key."""

from __future__ import annotations

from collections.abc import Sequence

from oxpull_async._contention import retrying
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports import NewTask, Store


async def insert_tasks(store: Store, tasks: Sequence[NewTask], *, tried_before: bool = False) -> None:
    """Insert all rows or none, in a transaction of our own.

    The ids are new and ours alone. So after a try whose outcome is unknown,
    an id that exists already says that it had been committed.
    """
    tries = 1 if tried_before else 0

    async def insert() -> None:
        nonlocal tries
        tries += 1
        try:
            await store.insert_tasks(tasks)
        except UniqueViolation:
            if tries == 1:
                raise

    await retrying(insert)
