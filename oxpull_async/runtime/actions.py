"""What an operator does to single rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.ports import Store
from oxpull_async.runtime.hints import ReadyHints, SettleHints

_CHUNK: Final = 1000
_LONG_OVER: Final = timedelta(days=1)

_Deed: TypeAlias = Callable[[Sequence[UUID]], Awaitable[Sequence[UUID]]]


class Changed(NamedTuple):
    """How many rows a ``_many`` action changed, and how many ids it skipped."""

    changed: int
    skipped: int


class Actions:
    """Retry, discard, cancel and expire, each fenced by the row's status. A malformed or unknown id changes nothing.

    The ``_many`` forms work in transactions of 1000 rows, locked in key order;
    an id that is named twice counts as skipped the second time.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        settled: SettleHints,
        ready: ReadyHints,
        clock: Clock,
        cancelled: Callable[[Sequence[UUID]], None],
    ) -> None:
        self._store = store
        self._cancelled = cancelled
        self._settled = settled
        self._ready = ready
        self._clock = clock

    async def retry(self, task_id: UUID | str) -> bool:
        """Put a FAILED or LOST row back to READY with one further attempt; True if it did.

        Doesn't look at unique locks: a retried row that a later enqueue has
        superseded runs beside the newer one.
        """
        return (await self.retry_many([task_id])).changed == 1

    async def retry_many(self, task_ids: Iterable[UUID | str]) -> Changed:
        """Retry many rows."""
        store = self._store()
        done = await _change(task_ids, store.retry)
        if done.changed:
            self._ready.enqueued()
        return done

    async def discard(self, task_id: UUID | str) -> bool:
        """Settle a READY, WAITING, FAILED or LOST row as DISCARDED; True if it did. It won't run again."""
        return (await self.discard_many([task_id])).changed == 1

    async def discard_many(self, task_ids: Iterable[UUID | str]) -> Changed:
        """Discard many rows."""
        store = self._store()
        return await _change(task_ids, lambda ids: store.discard(ids, now=self._clock.now()), self._settled)

    async def cancel(self, task_id: UUID | str) -> bool:
        """Settle a READY, WAITING or RUNNING row as DISCARDED; True if it did.

        A task that runs is fenced away from its worker: from this moment
        nothing of that attempt can be written, and its key is free. A worker
        of this process, and on PostgreSQL any other, notices at once, all
        others at their next renewal (after a third of their lease at most),
        and cancels the coroutine; until then, or to its end where it is a
        thread or on a worker of django-ox, it runs on in vain.
        """
        return (await self.cancel_many([task_id])).changed == 1

    async def cancel_many(self, task_ids: Iterable[UUID | str]) -> Changed:
        """Cancel many rows."""
        store = self._store()

        async def cancel(ids: Sequence[UUID]) -> Sequence[UUID]:
            done = await store.cancel(ids, now=self._clock.now())
            self._cancelled(done)
            return done

        return await _change(task_ids, cancel, self._settled)

    async def expire_lease(self, task_id: UUID | str) -> bool:
        """End the lease of a RUNNING row whose worker is known to be dead; True if it did.

        The next pass of any worker's reaper (or ``ox.reap()``) frees the row.
        A worker that lives after all renews the lease, if it comes first.
        """
        return (await self.expire_lease_many([task_id])).changed == 1

    async def expire_lease_many(self, task_ids: Iterable[UUID | str]) -> Changed:
        """End many leases."""
        store = self._store()
        return await _change(task_ids, lambda ids: store.expire_lease(ids, expired_at=self._clock.now() - _LONG_OVER))


async def _change(task_ids: Iterable[UUID | str], deed: _Deed, settled: SettleHints | None = None) -> Changed:
    ids, skipped = _parsed(task_ids)
    changed = 0
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        done = await retrying(partial(deed, chunk))
        changed += len(done)
        if settled is not None:
            settled.settled(done)
    return Changed(changed, len(ids) - changed + skipped)


def _parsed(task_ids: Iterable[UUID | str]) -> tuple[list[UUID], int]:
    ids: dict[UUID, None] = {}
    skipped = 0
    for task_id in task_ids:
        try:
            found = task_id if isinstance(task_id, UUID) else UUID(str(task_id))
        except ValueError:
            skipped += 1
        else:
            skipped += found in ids
            ids[found] = None
    return list(ids), skipped
