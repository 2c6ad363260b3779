"""What an operator does to single rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.ports import Store
from oxpull_async.runtime.hints import ReadyHints, SettleHints

_CHUNK = 1000


class Changed(NamedTuple):
    """How many rows a ``_many`` action changed, and how many ids it skipped."""

    changed: int
    skipped: int


class Actions:
    """Retry and discard, fenced by the row's status. A malformed or unknown id changes nothing."""

    def __init__(self, store: Callable[[], Store], settled: SettleHints, ready: ReadyHints, clock: Clock) -> None:
        self._store = store
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
        """Retry many rows, 1000 in a transaction."""
        ids, skipped = _parsed(task_ids)
        changed = 0
        for chunk in _chunks(ids):
            changed += len(await retrying(partial(self._store().retry, chunk)))
        if changed:
            self._ready.enqueued()
        return Changed(changed, len(ids) - changed + skipped)

    async def discard(self, task_id: UUID | str) -> bool:
        """Settle a READY, WAITING, FAILED or LOST row as DISCARDED; True if it did. It won't run again."""
        return (await self.discard_many([task_id])).changed == 1

    async def discard_many(self, task_ids: Iterable[UUID | str]) -> Changed:
        """Discard many rows, 1000 in a transaction."""
        ids, skipped = _parsed(task_ids)
        changed = 0
        for chunk in _chunks(ids):
            done = await retrying(partial(self._store().discard, chunk, now=self._clock.now()))
            self._settled.settled(done)
            changed += len(done)
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


def _chunks(ids: list[UUID]) -> list[list[UUID]]:
    return [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
