"""All that one ``Oxpull`` has about batches, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from oxpull_async.batches.bound import BoundOxpull
from oxpull_async.batches.collection import Batches
from oxpull_async.batches.host import BatchHost
from oxpull_async.batches.own import Crowds
from oxpull_async.enqueueing.bound import BoundHost
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.enqueueing.requests import kept_by_lock
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.results import EnqueueResult
from oxpull_async.runtime.batch_stats import BatchFigures
from oxpull_async.runtime.callbacks import Callbacks
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.runtime.identity import OwnName
from oxpull_async.runtime.leader import Leader
from oxpull_async.runtime.reconciler import Reconciler
from oxpull_async.runtime.reconciling import ReconcilerLoop
from oxpull_async.runtime.roster import Roster
from oxpull_async.runtime.wakeups import Announcer
from oxpull_async.tasks import AnyTask


@dataclass(frozen=True, slots=True)
class News:
    """What a transaction of ours has done that others want to hear of once it's committed."""

    created: list[EnqueueResult] = field(default_factory=list)
    sealed: list[UUID] = field(default_factory=list)


class Batching:
    """The batches themselves, and the reconciler that completes them."""

    def __init__(
        self,
        bound_host: BoundHost,
        *,
        tasks: Callable[[], Mapping[str, AnyTask]],
        desk: Callable[[], Desk],
        announce: Callable[[Callable[[], Iterable[EnqueueResult]]], Awaitable[None]],
        settled: SettleHints,
        roster: Roster,
        announcer: Announcer,
    ) -> None:
        settings, clock, store, reader = bound_host.settings, bound_host.clock, bound_host.store, bound_host.reader
        completions = SettleHints()
        callbacks = Callbacks(settings, tasks)
        reconciler = Reconciler(store, callbacks, clock, reader, announce, completions)
        leader = Leader(store, lambda: reconciler.role, OwnName())
        self._bound_host = bound_host
        self._announcer = announcer
        self._loop = ReconcilerLoop(reconciler, leader, settled, roster)
        self._host = BatchHost(
            settings=settings,
            clock=clock,
            tasks=tasks,
            reader=reader,
            store=store,
            desk=desk,
            uniqueness=kept_by_lock(bound_host.uniqueness),
            announce=announce,
            sealed=self._tell_sealed,
            completions=completions,
            crowds=Crowds(store, settings.unique_wait),
        )
        self.figures: BatchFigures = BatchFigures(
            store, callbacks, reconciler, clock, elsewhere=settings.reconciler == "external"
        )
        self.batches: Batches = Batches(self._host, reconciler, self._loop.hear_sealed)

    def bound(self, join: Callable[[], JoinedStore], news: News | None = None) -> BoundOxpull:
        """The verbs within a transaction; ``news`` gathers what its commit will bring."""
        if news is None:
            return BoundOxpull(self._bound_host, self._host, join)
        return BoundOxpull(self._bound_host, self._host, join, news.created.append, news.sealed.append)

    def tell_sealed(self, news: News) -> None:
        """The transaction was committed."""
        for batch_id in news.sealed:
            self._tell_sealed(batch_id)

    @asynccontextmanager
    async def reconciling(self, wanted: bool) -> AsyncIterator[None]:
        """The reconciler at work for as long as the block lasts, if it's wanted and the settings say so."""
        if not wanted or self._host.settings.reconciler is not True:
            yield
            return
        async with self._loop.held():
            yield

    def _tell_sealed(self, batch_id: UUID) -> None:
        self._loop.hear_sealed(batch_id)
        self._announcer.sealed(batch_id)

    async def drain(self) -> None:
        """Wait for the additions that are under way."""
        await self._host.crowds.drain()
