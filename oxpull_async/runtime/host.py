"""What the services need of the ``Oxpull`` they work for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import UUID

from oxpull_async.clock import Clock
from oxpull_async.core.durations import Duration
from oxpull_async.ports import Store
from oxpull_async.runtime.exclusive_blocks import ExclusiveBlocks
from oxpull_async.runtime.health import HealthCheck
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.runtime.hooks import Hooks
from oxpull_async.runtime.limits import Limits
from oxpull_async.runtime.scheduling import Schedules
from oxpull_async.runtime.state import TaskState
from oxpull_async.runtime.wakeups import Announcer
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Enqueuer


class SealHints(Protocol):
    """Hears of sealed batches."""

    def hear_sealed(self, batch_id: UUID) -> None:
        """This batch was sealed, here or elsewhere."""
        ...


class Host(Enqueuer, Protocol):
    """An ``Oxpull``, from below."""

    @property
    def settings(self) -> Settings:
        """What is set."""
        ...

    @property
    def store(self) -> Store:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that can run here, by path."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def limits(self) -> Limits:
        """Claims within the rate limits."""
        ...

    @property
    def exclusive(self) -> ExclusiveBlocks:
        """Keys that one at a time holds."""
        ...

    @property
    def schedules(self) -> Schedules:
        """What is enqueued by the clock."""
        ...

    @property
    def task_state_keeper(self) -> TaskState:
        """What tasks find in their context's ``state``."""
        ...

    @property
    def hooks(self) -> Hooks:
        """The registered hooks."""
        ...

    @property
    def settle_hints(self) -> SettleHints:
        """Tells waiters that a row was settled."""
        ...

    @property
    def ready_hints(self) -> ReadyHints:
        """Tells workers that a row was enqueued."""
        ...

    @property
    def announcer(self) -> Announcer:
        """Tells workers of other processes that a row was enqueued."""
        ...

    @property
    def health(self) -> HealthCheck:
        """Keeps the roster of the services at work."""
        ...

    @property
    def batches(self) -> SealHints:
        """Takes hints of other processes."""
        ...

    async def complete_batches(self) -> int:
        """One pass of the reconciler; returns how many batches it completed."""
        ...

    def running(
        self,
        *,
        reconciler: bool = True,
        prune_older_than: Duration | None = None,
        prune_batches_older_than: Duration | None = None,
    ) -> AbstractAsyncContextManager[Any]:
        """Open for as long as the block lasts."""
        ...
