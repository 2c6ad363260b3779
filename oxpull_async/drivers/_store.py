"""The ports, implemented once over any dialect's room: which procedure runs, and in what transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from oxpull_async._figures import Counts, LockRow
from oxpull_async._links import LeaseKeeper, Listener
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.stored_schedules import Boundary, ScheduleRow, UnreadableRow
from oxpull_async.drivers import _ticks
from oxpull_async.drivers._batches import SqlBatchStore
from oxpull_async.drivers._exclusive import SqlExclusiveStore, renew_places
from oxpull_async.drivers._joined.session import JoinedSession
from oxpull_async.drivers._joined.store import Callers, JoinedSqlStore
from oxpull_async.drivers._keys import SqlKeyStore
from oxpull_async.drivers._limit_store import LimitOperations
from oxpull_async.drivers._procedure import Procedure, Undecided
from oxpull_async.drivers._room import Alone, Room, Wakeups
from oxpull_async.exceptions import NotOpen, WrongDatabase
from oxpull_async.ports import (
    Attempt,
    Capabilities,
    Claim,
    ClaimRequest,
    NewTask,
    NewUnique,
    Outcome,
    Pruned,
    Reaped,
    TakeOver,
    TaskRow,
    Unseen,
)
from oxpull_async.ports_exclusive import HeldPlace, Renewal
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.ports_schedules import NewTick, TickOutcome, TickRefused, TickTaken

_NO_TASK = UUID(int=0)


class SqlStore(LimitOperations):
    """A ``ports.Store``."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pool = room.pool
        self._capabilities: Capabilities | None = None
        self._callers = Callers(room)
        self.batches: SqlBatchStore = SqlBatchStore(room, lambda: self._pool)
        self.exclusive: SqlExclusiveStore = SqlExclusiveStore(room, lambda: self._pool)
        self._keys = SqlKeyStore(room, lambda: self._pool)

    @property
    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            raise NotOpen("the store is not open, so what its server can do isn't known yet")
        return self._capabilities

    @property
    def keys(self) -> SqlKeyStore:
        return self._keys

    async def open(self) -> None:
        await self._pool.open()
        try:
            self._capabilities = await self._pool.describe()
            await self._callers.identities.learn()
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        self._capabilities = None
        await self._pool.close()

    async def migrate(self, *, lean: bool = False) -> Sequence[str]:
        steps = await self._pool.migrate(lean=lean)
        try:
            await self.get_task(_NO_TASK)
        except WrongDatabase as error:
            raise WrongDatabase(
                f"the queue's tables here were made by an older django-ox, and migrate alters none: {error.__cause__}. "
                "Run `manage.py migrate` with django-ox 1.9.1 or later first."
            ) from error
        await self._callers.identities.learn()
        return steps

    async def insert_tasks(self, tasks: Sequence[NewTask]) -> None:
        if len(tasks) <= self._room.insert_chunk:
            await self._pool.write(self._room.tasks.insert(tasks))
        else:
            await self._pool.transact(self._insert_in_chunks(tasks))

    def _insert_in_chunks(self, tasks: Sequence[NewTask]) -> Procedure[None]:
        for start in range(0, len(tasks), self._room.insert_chunk):
            yield from self._room.tasks.insert(tasks[start : start + self._room.insert_chunk])

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, probably_free: bool = False
    ) -> Sequence[Attempt]:
        if len(uniques) <= 1:
            return await self._insert_in_order(uniques, wait_seconds, probably_free) if uniques else []
        in_order = sorted(uniques, key=lambda unique: unique.key)
        answers = await self._insert_in_order(in_order, wait_seconds, probably_free)
        by_key = dict(zip((unique.key for unique in in_order), answers, strict=True))
        return [by_key[unique.key] for unique in uniques]

    def _insert_in_order(
        self, uniques: Sequence[NewUnique], wait_seconds: float, probably_free: bool
    ) -> Awaitable[Sequence[Attempt]]:
        procedure = self._room.unique.insert(uniques, wait_seconds, probably_free=probably_free)
        return self._pool.write(procedure, wait_seconds=wait_seconds)

    async def insert_unique_together(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, passes: int
    ) -> Sequence[Attempt]:
        if not uniques:
            return []
        in_order = sorted(uniques, key=lambda unique: unique.key)
        try:
            answers = await self._pool.transact(
                self._decide_all(in_order, wait_seconds, passes), wait_seconds=wait_seconds
            )
        except Undecided:
            return [Unseen()] * len(uniques)
        return [answers[unique.key] for unique in uniques]

    def _decide_all(
        self, in_order: Sequence[NewUnique], wait_seconds: float, passes: int
    ) -> Procedure[dict[str, Attempt]]:
        answers: dict[str, Attempt] = {}
        for chunk in _chunks(in_order, self._room.insert_chunk):
            found = yield from self._room.unique.insert_together(chunk, wait_seconds, passes)
            answers |= dict(zip((unique.key for unique in chunk), found, strict=True))
        if any(isinstance(answer, Unseen) for answer in answers.values()):
            raise Undecided("a key changed hands at each pass")
        return answers

    async def read_holder(self, key: str) -> Attempt:
        return (await self._pool.read(self._room.unique.read_holders([key])))[key]

    async def take_over(self, take_over: TakeOver, *, wait_seconds: float) -> Attempt:
        return await self._pool.transact(
            self._room.unique.take_over(take_over, wait_seconds), wait_seconds=wait_seconds
        )

    async def recheck(self, keys: Sequence[str]) -> Mapping[str, Attempt]:
        return await self._pool.recheck(self._room.unique.read_holders(keys))

    def join(self, session: JoinedSession, *, tells: bool) -> JoinedStore:
        """Work in a caller's transaction. ``tells``: of new task rows, where there are notifications."""
        if session.engine != self._room.engine:
            raise TypeError(
                f"the bound connection is one of {session.engine}, but this Oxpull's database is {self._room.engine}"
            )
        return JoinedSqlStore(session, self._callers, tells=tells)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JoinedStore]:
        async with self._pool.begin() as session:
            joined = JoinedSqlStore(session, self._callers, own=True)
            async with joined.lasting():
                yield joined

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        return await self._pool.read(self._room.tasks.get(task_id))

    async def get_tasks(self, task_ids: Sequence[UUID]) -> Sequence[TaskRow]:
        return await self._pool.read(self._room.tasks.get_many(task_ids)) if task_ids else []

    async def list_tasks(self, *, after: UUID | None, limit: int) -> Sequence[TaskRow]:
        return await self._pool.read(self._room.tasks.list_page(after or _NO_TASK, limit))

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        if request.limited_queue:
            return await self._claim_limited(request)
        probe = self._room.claims.probe(request)
        if probe is not None and not await self._pool.read(probe):
            return []
        return await self._pool.write(self._room.claims.claim(request))

    async def held(self, worker_id: str) -> Sequence[Claim]:
        return await self._pool.read(self._room.claims.held(worker_id))

    async def next_due(
        self, *, task_paths: Sequence[str], queues: Sequence[str] | None, after: datetime
    ) -> datetime | None:
        return await self._pool.read(self._room.claims.next_due(task_paths, queues, after)) if task_paths else None

    async def settle(self, outcomes: Sequence[Outcome]) -> Sequence[UUID]:
        if any(outcome.may_rerun for outcome in outcomes):
            landed = await self.keys.settle([outcome for outcome in outcomes if outcome.may_rerun])
            return [*landed, *await self.settle([outcome for outcome in outcomes if not outcome.may_rerun])]
        snoozed = [outcome for outcome in outcomes if outcome.settlement.refunds]
        if not snoozed:
            return await self._pool.write(self._room.outcomes.settle(outcomes)) if outcomes else []
        others = [outcome for outcome in outcomes if not outcome.settlement.refunds]
        landed = await self._pool.write(self._room.outcomes.snooze(snoozed))
        return [*landed, *await self.settle(others)]

    async def release(self, claims: Sequence[Claim], *, worker_id: str) -> Sequence[UUID]:
        return await self._pool.write(self._room.claims.release(claims, worker_id)) if claims else []

    async def renew(self, claims: Sequence[Claim], *, worker_id: str, lease_seconds: float) -> Sequence[UUID]:
        if not claims:
            return []
        return await self._pool.write(self._room.claims.renew(claims, worker_id, lease_seconds))

    @asynccontextmanager
    async def lease_keeper(self) -> AsyncIterator[LeaseKeeper]:
        async with self._pool.alone() as connection:
            yield SqlLeaseKeeper(self._room, connection)

    @asynccontextmanager
    async def listener(self, heard: Callable[[str], None], lost: Callable[[], None]) -> AsyncIterator[Listener]:
        async with self._wakeups().listening(heard, lost) as listener:
            yield listener

    async def notify(self, word: str) -> None:
        await self._wakeups().notify(word)

    def _wakeups(self) -> Wakeups:
        if self._room.wakeups is None:
            raise NotImplementedError(f"{self._room.engine} has no notifications: see Capabilities")
        return self._room.wakeups

    async def reap(self, *, lease_seconds: float, limit: int, now: datetime) -> Reaped:
        return await self._pool.transact(self._room.maintenance.reap(lease_seconds, limit, now))

    async def retry(self, task_ids: Sequence[UUID]) -> Sequence[UUID]:
        return await self._pool.write(self._room.maintenance.retry(task_ids)) if task_ids else []

    async def discard(self, task_ids: Sequence[UUID], *, now: datetime) -> Sequence[UUID]:
        return await self._pool.write(self._room.maintenance.discard(task_ids, now)) if task_ids else []

    async def cancel(self, task_ids: Sequence[UUID], *, now: datetime) -> Sequence[UUID]:
        return await self._pool.write(self._room.maintenance.cancel(task_ids, now)) if task_ids else []

    async def expire_lease(self, task_ids: Sequence[UUID], *, expired_at: datetime) -> Sequence[UUID]:
        return await self._pool.write(self._room.maintenance.expire_lease(task_ids, expired_at)) if task_ids else []

    async def prune(self, *, statuses: Sequence[TaskStatus], finished_before: datetime, limit: int) -> Pruned:
        maintenance = self._room.maintenance
        tasks = await self._pool.transact(maintenance.prune_tasks(statuses, finished_before, limit))
        locks = await self._pool.transact(maintenance.prune_locks(limit))
        ticks = await self._pool.transact(maintenance.prune_ticks(finished_before, limit))
        return Pruned(tasks, locks, ticks, await self.prune_buckets(limit=limit))

    async def probe(self) -> None:
        await self._pool.read(self._room.inspection.probe())

    async def missing_steps(self) -> Sequence[str]:
        return await self._pool.read(self._room.inspection.missing_steps())

    async def count(self, *, now: datetime, since: datetime, limit: int) -> Counts:
        return await self._pool.read(self._room.inspection.count(now, since, limit))

    async def list_locks(self, *, after: str, limit: int) -> Sequence[LockRow]:
        return await self._pool.read(self._room.inspection.list_locks(after, limit))

    async def newest_ticks(self, keys: Sequence[str], *, since: datetime) -> Mapping[str, datetime]:
        return await self._pool.read(self._room.ticks.newest(keys, since)) if keys else {}

    async def fire(self, tick: NewTick) -> TickOutcome:
        return await self._fired(_ticks.fire(self._room, tick))

    async def fire_stored(self, schedule_id: int, admit: Callable[[ScheduleRow | None], NewTick | None]) -> TickOutcome:
        return await self._fired(_ticks.fire_stored(self._room, schedule_id, admit))

    async def _fired(self, procedure: Procedure[TickOutcome]) -> TickOutcome:
        try:
            return await self._pool.transact(procedure)
        except _ticks.Refused:
            return TickRefused()
        except Undecided:
            return TickTaken()

    async def schedules_changed_at(self) -> datetime | None:
        return await self._pool.read(self._room.schedules.changed_at())

    async def stored_schedules(self) -> Sequence[ScheduleRow | UnreadableRow]:
        return await self._pool.read(self._room.schedules.read())

    async def move_boundary(self, schedule_id: int, observed: Boundary, *, now: datetime) -> bool:
        return await self._pool.transact(_ticks.move_boundary(self._room, schedule_id, observed, now))


class SqlLeaseKeeper:
    """A ``ports.LeaseKeeper``."""

    def __init__(self, room: Room, connection: Alone) -> None:
        self._room = room
        self._connection = connection

    async def renew(self, claims: Sequence[Claim], *, worker_id: str, lease_seconds: float) -> Sequence[UUID]:
        return await self._connection.write(self._room.claims.renew(claims, worker_id, lease_seconds))

    async def renew_places(self, places: Sequence[HeldPlace]) -> Renewal:
        return await renew_places(self._room, self._connection, places)

    async def get_tasks(self, task_ids: Sequence[UUID]) -> Sequence[TaskRow]:
        return await self._connection.read(self._room.tasks.get_many(task_ids))


def _chunks(uniques: Sequence[NewUnique], size: int) -> Iterator[Sequence[NewUnique]]:
    return (uniques[start : start + size] for start in range(0, len(uniques), size))
