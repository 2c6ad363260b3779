"""The ports of unique keys, implemented once over any dialect's room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.drivers import _reruns
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room import Pool, Room
from oxpull_async.ports import Attempt, Outcome, TaskRow, Unseen
from oxpull_async.ports_keys import KeyRow, Rerun


class SqlKeyStore:
    """A ``ports_keys.KeyStore``."""

    def __init__(self, room: Room, pool: Callable[[], Pool]) -> None:
        self._room = room
        self._get_pool = pool

    async def move(self, seen: TaskRow, run_after: datetime | None, *, wait_seconds: float) -> TaskRow | None:
        procedure = self._room.revisions.move(seen, run_after, joined=False)
        return await self._bounded(procedure, wait_seconds)

    async def replace(self, seen: TaskRow, key: str, args: str, kwargs: str, *, wait_seconds: float) -> TaskRow | None:
        procedure = self._room.revisions.replace(seen, key, args, kwargs, joined=False)
        return await self._bounded(procedure, wait_seconds)

    async def recheck_holds(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        return await self._pool.recheck(self._read_holds(keys))

    async def read_key(self, key: str, *, hold: bool) -> KeyRow | None:
        return await self._pool.read(self._room.holds.read_key(key, hold))

    async def read_rerun(self, key: str) -> Rerun | None:
        return await self._pool.read(self._room.revisions.read_rerun(key))

    async def release(self, key: str, task_id: UUID | None, *, hold: bool) -> bool:
        return await self._pool.transact(self._room.holds.release(key, task_id, hold))

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[UUID]:
        return await self._pool.transact(_reruns.settle(self._room, outcomes))

    async def due_reruns(self, *, limit: int) -> Sequence[str]:
        return await self._pool.read(self._room.revisions.due_reruns(limit))

    async def start_rerun(self, key: str) -> bool:
        return await self._pool.transact(_reruns.start_due(self._room, key))

    async def prune_holds(self, *, now: datetime, limit: int) -> int:
        return await self._pool.transact(self._room.holds.prune(now, limit))

    @property
    def _pool(self) -> Pool:
        return self._get_pool()

    async def _bounded(self, procedure: Procedure[TaskRow | None], wait_seconds: float) -> TaskRow | None:
        bounded = self._room.holds.in_transaction(procedure, wait_seconds)
        return await self._pool.transact(bounded, wait_seconds=wait_seconds)

    def _read_holds(self, keys: Sequence[str]) -> Procedure[dict[str, Attempt]]:
        seen = yield from self._room.holds.read(keys)
        return {key: seen.get(key, Unseen()) for key in keys}
