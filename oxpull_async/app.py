"""``Oxpull``: the one object that joins tasks, enqueueing, the store and the services."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from oxpull_async._intake import Intake
from oxpull_async._opening import Opening
from oxpull_async._shield import shielded
from oxpull_async.batches.batching import Batching, News
from oxpull_async.batches.bound import BoundOxpull
from oxpull_async.batches.collection import Batches
from oxpull_async.clock import Clock
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.names import check_task_path
from oxpull_async.drivers import SqlStore, session_factory
from oxpull_async.enqueueing.bound import BoundHost
from oxpull_async.enqueueing.foreign import AnyEnqueueable
from oxpull_async.enqueueing.keys import UniqueKeys
from oxpull_async.enqueueing.requests import row_to_write
from oxpull_async.enqueueing.substitutes import Substitutes
from oxpull_async.enqueueing.verbs import Verbs
from oxpull_async.exceptions import InvalidSettings, InvalidTask, NotOpen
from oxpull_async.options import make_options
from oxpull_async.ports import Pruned, Reaped
from oxpull_async.results import EnqueueResult, TaskResult
from oxpull_async.runtime.actions import Actions
from oxpull_async.runtime.checkup import Checkup, Finding
from oxpull_async.runtime.draining import run_until_idle
from oxpull_async.runtime.exclusive_blocks import ExclusiveBlocks
from oxpull_async.runtime.exclusive_tasks import ExclusiveTasks
from oxpull_async.runtime.health import HealthCheck
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.runtime.hooks import Hooked, Hooks
from oxpull_async.runtime.limits import Limits
from oxpull_async.runtime.pruner import Pruner, ages_of
from oxpull_async.runtime.queues import Queues
from oxpull_async.runtime.reading import Reader
from oxpull_async.runtime.rerunner import Rerunner
from oxpull_async.runtime.scheduling import Schedules
from oxpull_async.runtime.state import TaskState
from oxpull_async.runtime.stats import Stats
from oxpull_async.runtime.supervisor import Member, Supervisor
from oxpull_async.runtime.upkeep import Upkeep
from oxpull_async.runtime.wakeups import Announcer
from oxpull_async.runtime.worker import Worker
from oxpull_async.settings import Settings, make_settings, settings_from_environment
from oxpull_async.tasks import AnyTask, Call, Task, TaskMaker, TaskRouter

F = TypeVar("F", bound=Callable[[], Any])


class Oxpull(TaskMaker, Verbs, Hooked):
    """A task queue in a database that is there already.

    ``database`` is a URL: ``sqlite:///relative.db``, ``sqlite:////absolute.db``,
    ``postgresql://user@host/name``, ``mysql://user@host/name``; left out, it's
    read from ``OXPULL_DATABASE_URL`` when the Oxpull is opened. Nothing is
    connected before ``open()`` (or ``async with``). May be made at import, and
    opened and closed any number of times, one event loop at a time.

    Raises: InvalidSettings naming the setting that is wrong.
    """

    def __init__(self, database: str | None = None, **settings: Any) -> None:
        super().__init__()
        self.settings: Settings = make_settings({"database": database, **settings})
        self._home.enqueuer = self
        self.clock: Clock = Clock()
        self.substitutes: Substitutes = Substitutes()
        self._opening = Opening(self.settings, self.substitutes)
        self.hooks: Hooks = Hooks()
        self.task_state_keeper: TaskState = TaskState()
        self._settle_hints = SettleHints()
        self.announcer: Announcer = Announcer(lambda: self.store, self.settings)
        self._ready_hints = ReadyHints(self.announcer.announce)
        self._reader = Reader(lambda: self.substitutes.recipient or self.store, self._settle_hints)
        self._upkeep = Upkeep(lambda: self.store, self._settle_hints, self._ready_hints, self.clock)
        self._intake = Intake(
            self._opening, self.settings, self.clock, self.substitutes, self._reader,
            self._announce, self._ready_hints.enqueued,
        )  # fmt: skip
        uniqueness = self._intake.uniqueness
        self._bound_host = BoundHost(
            self.settings, self._reader, lambda: self.store, uniqueness, self.clock, self.substitutes
        )
        self.actions: Actions = Actions(
            lambda: self.store, self._settle_hints, self._ready_hints, self.clock, self.announcer.cancelled
        )
        self.unique: UniqueKeys = UniqueKeys(self._bound_host, Rerunner(self).sweep)
        self.stats: Stats = Stats(lambda: self.store, self._tasks, self.clock, lambda: self._batching.figures)
        self.health: HealthCheck = HealthCheck(lambda: self.store, self.stats.batches)
        exclusive = ExclusiveTasks(self._tasks, lambda: self.store, self._settle_hints, self._ready_hints)
        self.exclusive: ExclusiveBlocks = ExclusiveBlocks(lambda: self.store.exclusive, exclusive)
        self.limits: Limits = Limits(self)
        self.queues: Queues = Queues(lambda: self.store, self._ready_hints, self.limits.places)
        make_row = partial(row_to_write, settings=self.settings, unique=uniqueness)
        self.schedules: Schedules = Schedules(self, make_row, self._announce, self._reader)
        self._batching = Batching(
            self._bound_host,
            tasks=lambda: self._tasks,
            desk=lambda: self._opening.require().desk,
            announce=self._announce_made,
            settled=self._settle_hints,
            roster=self.health.roster,
            announcer=self.announcer,
        )
        self.batches: Batches = self._batching.batches

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Oxpull:
        """An Oxpull with what the ``OXPULL_…`` variables say. Raises: InvalidSettings."""
        try:
            return cls(**settings_from_environment(environ))
        except ValueError as error:
            raise InvalidSettings(f"from the environment: {error}") from error

    @classmethod
    def in_memory(cls, **settings: Any) -> Oxpull:
        """An Oxpull over a real SQLite database in memory, with its tables: gone when it is closed."""
        ox = cls("sqlite:///:memory:", **settings)
        ox._opening.migrates = True
        return ox

    # Life

    async def open(self) -> Oxpull:
        """Connect; if it's open already, do nothing. Needs no tables.

        Raises: NotOpen if it's open in another event loop, InvalidSettings, ConnectionLost, WrongDatabase.
        """
        await self._opening.open()
        return self

    async def close(self) -> None:
        """Let shared statements end, and close every connection, within bounds. May be called again.

        Raises: NotOpen in another event loop than the one that it's open in.
        """
        if not self._opening.is_open:
            return
        self._opening.require()
        try:
            with contextlib.suppress(TimeoutError):
                await shielded(self._let_end(), within=self.settings.close_timeout)
        finally:
            await self._opening.close()

    async def _let_end(self) -> None:
        await self._batching.drain()
        await self.announcer.drain()

    async def __aenter__(self) -> Oxpull:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def running(
        self,
        *,
        reconciler: bool = True,
        schedules: bool = False,
        prune_older_than: Duration | None = None,
        prune_batches_older_than: Duration | None = None,
        worker: Worker | None = None,
    ) -> AsyncIterator[Oxpull]:
        """Open, with ``worker``, schedules and the reconciler at work, while the block lasts.

        What was open already stays open. A worker sees to the schedules by
        itself. The reconciler completes batches; without one here, other
        processes have to. ``prune_older_than`` and ``prune_batches_older_than``
        delete, a chunk at a time, what ``prune`` would: one process at a time
        does it, of all that are asked to. Workers go by the settings of these
        names, unless they are told otherwise.
        """
        members: list[Member] = [Rerunner(self).service()] if worker is None else [worker]
        if schedules and worker is None:
            members.append(self.schedules.service())
        ages = ages_of(prune_older_than, prune_batches_older_than)
        if ages.are_set:
            members.append(Pruner(self, ages).service())
        was_open = self._opening.is_open
        await self.open()
        supervisor = Supervisor(members, self.health.roster)
        supervisor.start()
        try:
            async with self._batching.reconciling(reconciler):
                yield self
        finally:
            try:
                await shielded(supervisor.stop(), within=supervisor.longest_stop)
            finally:
                if not was_open:
                    await self.close()

    def lifespan(self, app: Any = None) -> AbstractAsyncContextManager[dict[str, Any]]:
        """An ASGI lifespan: ``FastAPI(lifespan=ox.lifespan)``. Its state offers the Oxpull as ``ox``."""
        return self._lifespan()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[dict[str, Any]]:
        async with self.running():
            yield {"ox": self}

    async def migrate(self, *, lean: bool = False) -> Sequence[str]:
        """Create the tables and indexes that are missing; returns the names of the steps that were new.

        Adopts tables that Django made, and never alters them. Safe when
        several processes do it at once. ``lean`` leaves out the reference's
        dequeue indexes for leaner ones of our own.
        """
        return await self.store.migrate(lean=lean)

    async def check(self) -> list[Finding]:
        """What is set up in a way that will disappoint, the worst first. Writes nothing. Raises: NotOpen."""
        return await Checkup(self, self._opening.require().store).findings()

    # Tasks

    def include(self, router: TaskRouter) -> None:
        """Take over the tasks of a router. Raises: InvalidTask."""
        for path, task in router.tasks.items():
            if self._tasks.get(path, task) is not task:
                raise InvalidTask(f"the task path {path} is taken by {self._tasks[path].function!r}; rename one")
        self._take_schedules(router)
        router.join(self, self._tasks)

    def reference(self, path: str, **options: Any) -> Task[..., Any]:
        """A task of another code base, known by its path: it can be enqueued here, and never runs here."""
        return Task(None, check_task_path(path), make_options(options), self._home)

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that can run here, by path."""
        return self._tasks

    def task_state(self, factory: F) -> F:
        """Decorate an async generator function that yields what tasks find in their context's ``state``.

        It's entered before a worker's first task, and left after its last,
        once for all workers of this Oxpull. Raises: InvalidTask.
        """
        self.task_state_keeper.provide(factory)
        return factory

    # Enqueue

    def enqueue_call(
        self, task: AnyEnqueueable, call: Call, *, force_unique: bool = False
    ) -> Coroutine[Any, Any, EnqueueResult]:
        """What every single enqueue comes down to."""
        return self._intake.call(task, call, force_unique)

    def enqueue_calls(
        self, task: AnyEnqueueable, calls: Iterable[Call | Sequence[Any]], *, force_unique: bool = False
    ) -> Coroutine[Any, Any, list[EnqueueResult]]:
        """What every bulk enqueue comes down to."""
        return self._intake.calls(task, calls, force_unique)

    def bind(self, connection: object) -> BoundOxpull:
        """The same verbs inside the transaction that this connection (or session) is in.

        Takes a connection of asyncpg, aiosqlite or asyncmy, an
        ``AsyncConnection`` or ``AsyncSession`` of SQLAlchemy, or a handle of
        ``oxpull_async.integrations``. What needs the server is checked at the
        first enqueue. Raises: TypeError for anything else.
        """
        make_session = session_factory(connection)
        tells = self.settings.notify
        return self._batching.bound(lambda: self._opening.require().store.join(make_session(), tells=tells))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[BoundOxpull]:
        """A transaction of our own with the same verbs: commits at the block's end, rolls back on an error."""
        if self.substitutes.recipient is not None:
            yield self._batching.bound(_join_nothing)
            return
        news = News()
        async with self._opening.require().store.transaction() as joined:
            yield self._batching.bound(lambda: joined, news)
        self._batching.tell_sealed(news)
        await self._announce(news.created)

    # Results

    async def get_result(self, task_id: UUID | str) -> TaskResult:
        """The task row with this id. Raises: TaskResultDoesNotExist, for a malformed id too."""
        return await self._reader.result(task_id)

    # Upkeep

    async def run_until_idle(
        self, *, concurrency: int = 10, raise_errors: bool = False, with_scheduled: bool | Duration = False
    ) -> int:
        """Run all that is due, what is enqueued meanwhile too, and complete batches; returns the number of attempts.

        ``with_scheduled`` also runs what is due later (all of it, or what is
        due within so long), retries included, moving our clock to each row's
        ``run_after``. ``raise_errors`` stops at the first attempt that fails,
        and raises its error.
        """
        return await run_until_idle(
            self, concurrency=concurrency, raise_errors=raise_errors, with_scheduled=with_scheduled
        )

    async def reap(self) -> Reaped:
        """One pass over expired leases: rows go back to READY, or become LOST without an attempt left."""
        return await self._upkeep.reap(self.settings.lease)

    async def prune(
        self,
        *,
        older_than: Duration = timedelta(days=7),
        include_failed: bool = False,
        batches_older_than: Duration | None = None,
    ) -> Pruned:
        """Delete rows settled and ticks fired longer ago than this, and unique locks of no pending row, by the 1000.

        FAILED and LOST rows only if asked for; a schedule's newest tick stays. Batches only if asked for: those that
        were completed longer ago than that, with their members.
        """
        return await self._upkeep.prune(
            seconds(older_than, "older_than"),
            include_failed=include_failed,
            batches_older_than_seconds=None
            if batches_older_than is None
            else seconds(batches_older_than, "batches_older_than"),
        )

    # Within

    @property
    def is_open(self) -> bool:
        """Whether it has connections."""
        return self._opening.is_open

    @property
    def store(self) -> SqlStore:
        """The open store. Raises: NotOpen."""
        return self._opening.require().store

    @property
    def settle_hints(self) -> SettleHints:
        """Tells waiters of this process that a row was settled."""
        return self._settle_hints

    @property
    def ready_hints(self) -> ReadyHints:
        """Tells workers of this process that a row was enqueued."""
        return self._ready_hints

    async def complete_batches(self) -> int:
        """One pass of the reconciler, if the settings leave that to this process; returns how many it completed."""
        return await self.batches.reconcile() if self.settings.reconciler is True else 0

    async def _announce_made(self, make: Callable[[], Iterable[EnqueueResult]]) -> None:
        """As ``_announce``, with results that are made only if somebody wants them."""
        self._ready_hints.enqueued()
        if self.hooks.wants("enqueued"):
            await self._announce(list(make()))

    async def _announce(self, created: Sequence[EnqueueResult]) -> None:
        """Tell of committed rows."""
        if created:
            self._ready_hints.enqueued()
        if self.hooks.wants("enqueued"):
            for result in created:
                await self.hooks.call("enqueued", result)


def _join_nothing() -> NoReturn:
    raise NotOpen("this Oxpull had no database when the transaction began, and has one now")
