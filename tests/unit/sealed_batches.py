"""A database of sealed batches in memory, and processes that complete them, for tests in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from oxpull_async import Oxpull
from oxpull_async.clock import Clock
from oxpull_async.core.batches import Ending
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.ports_batches import (
    BatchRow,
    Completed,
    Completion,
    CompletionAnswer,
    Leadership,
    NotSealed,
    Scan,
    SealedBatch,
    StillPending,
)
from oxpull_async.runtime.callbacks import Callbacks
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.runtime.leader import Leader
from oxpull_async.runtime.reconciler import Reconciler
from oxpull_async.runtime.reconciling import ReconcilerLoop
from oxpull_async.runtime.roster import Roster

LONGEST_STATEMENT = 0.02
CALLBACK = "proof.done"


class World:
    """What is committed."""

    def __init__(self) -> None:
        self.clock_ahead = 0.0
        self.roles: dict[str, tuple[str, float]] = {}
        self.pending: set[UUID] = set()
        self.members: dict[UUID, list[UUID]] = {}
        self.settled_at: dict[UUID, float] = {}
        self.completed_at: dict[UUID, float] = {}
        self.callbacks: dict[UUID, str] = {}

    def seal(self, *, members: int = 3, callback: str = "") -> UUID:
        """A new batch with pending members."""
        batch_id = uuid4()
        self.members[batch_id] = sorted(uuid4() for _ in range(members))
        self.pending.update(self.members[batch_id])
        self.callbacks[batch_id] = callback
        return batch_id

    async def settle(self, batch_id: UUID, *, within: float) -> None:
        """Its members, one by one, behind everybody's back."""
        for task_id in random.sample(self.members[batch_id], k=len(self.members[batch_id])):
            await asyncio.sleep(random.uniform(0, within))
            self.pending.discard(task_id)
        self.settled_at[batch_id] = now()

    def waits(self) -> list[float]:
        """For how many seconds batches have waited from their last member on; all are complete."""
        assert self.completed_at.keys() == self.settled_at.keys()
        return [self.completed_at[batch_id] - settled for batch_id, settled in self.settled_at.items()]


class Process:
    """Holds the reconciler's loop. Hints never reach it."""

    def __init__(self, world: World, *, knows: Iterable[str] = ()) -> None:
        ox = Oxpull("sqlite:///nowhere.db")
        tasks: dict[str, Any] = {path: ox.reference(path) for path in knows}
        self.name = uuid4().hex
        self.statements = _Statements(world)
        store: Any = lambda: self  # noqa: E731
        reader: Any = None
        reconciler = Reconciler(store, Callbacks(ox.settings, lambda: tasks), Clock(), reader, _announce, SettleHints())
        self.leader = Leader(store, lambda: reconciler.role, lambda: self.name)
        self.loop = ReconcilerLoop(reconciler, self.leader, SettleHints(), Roster())

    @property
    def batches(self) -> _Statements:
        """As a ``Store`` has it."""
        return self.statements

    def die(self) -> None:
        """Nothing comes from it any more."""
        self.statements.is_dead = True


class _Statements:
    """The part of a ``BatchStore`` that the loop needs; each statement takes up to 20 ms."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_dead = False
        self.count = 0
        self.looked_at: list[float] = []
        """When it was asked which batches are sealed."""

    async def sealed(self, *, after: SealedBatch | None, limit: int) -> Sequence[SealedBatch]:
        await self._take_time()
        self.looked_at.append(now())
        world = self._world
        return [
            SealedBatch(batch_id, world.callbacks[batch_id], "", True, datetime.now(UTC))
            for batch_id in world.members
            if batch_id not in world.completed_at
        ]

    async def pending(self, task_ids: Collection[UUID]) -> Sequence[UUID]:
        await self._take_time()
        return [task_id for task_id in task_ids if task_id in self._world.pending]

    async def scan(self, batch_id: UUID, *, below: UUID | None, limit: int) -> Scan:
        await self._take_time()
        page = [task_id for task_id in self._world.members[batch_id] if below is None or task_id < below]
        found = [task_id for task_id in page if task_id in self._world.pending]
        return Scan(max(found, default=None), min(page, default=None))

    async def get(self, batch_id: UUID) -> BatchRow | None:
        await self._take_time()
        status = BatchStatus.COMPLETE if batch_id in self._world.completed_at else BatchStatus.SEALED
        path, at = self._world.callbacks[batch_id], datetime.now(UTC)
        return BatchRow(batch_id, "", status, 0, path, "[]", "{}", "", "[]", "{}", 0, None, None, at, at, None)

    async def complete(self, completion: Completion) -> CompletionAnswer:
        await self._take_time()
        world, batch_id = self._world, completion.batch_id
        if batch_id in world.completed_at:
            return NotSealed()
        for task_id in reversed(world.members[batch_id]):
            if task_id in world.pending:
                return StillPending(task_id)
        world.completed_at[batch_id] = now()
        return Completed(Ending(len(world.members[batch_id]), 0, 0))

    async def lead(self, role: str, *, holder: str, lease_seconds: float) -> Leadership:
        await self._take_time()
        instant = now() + self._world.clock_ahead
        holds, expires = self._world.roles.get(role, (holder, 0.0))
        if holds == holder or expires < instant or expires > instant + lease_seconds:
            holds, expires = self._world.roles[role] = holder, instant + lease_seconds
        return Leadership(holds == holder, expires - instant)

    async def stand_down(self, role: str, *, holder: str) -> None:
        await self._take_time()
        if self._world.roles.get(role, ("", 0.0))[0] == holder:
            del self._world.roles[role]

    async def _take_time(self) -> None:
        self.count += 1
        await asyncio.sleep(random.uniform(0, LONGEST_STATEMENT))
        if self.is_dead:
            await asyncio.Event().wait()


def now() -> float:
    """In seconds, by the loop's time."""
    return asyncio.get_running_loop().time()


async def _announce(results: Any) -> None:
    results()
