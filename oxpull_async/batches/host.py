"""What batches need of the ``Oxpull`` behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from oxpull_async.batches.counting import Counting
from oxpull_async.batches.own import Crowds
from oxpull_async.clock import Clock
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.options import Unique
from oxpull_async.ports import Store
from oxpull_async.results import EnqueueResult, ResultSource
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask


@dataclass(frozen=True, slots=True)
class BatchHost:
    """An ``Oxpull``, as batches see it."""

    settings: Settings
    clock: Clock
    tasks: Callable[[], Mapping[str, AnyTask]]
    reader: ResultSource
    store: Callable[[], Store]
    desk: Callable[[], Desk]
    uniqueness: Callable[[AnyTask, bool], Unique | None]
    announce: Callable[[Callable[[], Iterable[EnqueueResult]]], Awaitable[None]]
    """Tells of committed rows; builds their results only where somebody wants them."""
    sealed: Callable[[UUID], None]
    """Tells the reconciler of this process that a batch was sealed."""
    completions: SettleHints
    """Wakes those who wait for a batch, by its id."""
    crowds: Crowds
    counting: Counting = field(default_factory=Counting)
