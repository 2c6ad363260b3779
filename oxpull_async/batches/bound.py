"""``ox.bind(connection)`` with batches: all of it within the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from oxpull_async.batches.access import JoinedAccess
from oxpull_async.batches.collection import BatchMaker
from oxpull_async.batches.host import BatchHost
from oxpull_async.enqueueing.bound import Bound, BoundHost
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.results import EnqueueResult


class BoundOxpull(Bound):
    """The verbs of an ``Oxpull`` within one transaction, batches included."""

    def __init__(
        self,
        host: BoundHost,
        batch_host: BatchHost,
        join: Callable[[], JoinedStore],
        on_created: Callable[[EnqueueResult], None] | None = None,
        on_sealed: Callable[[UUID], None] | None = None,
    ) -> None:
        super().__init__(host, join, on_created)
        self.batches: BatchMaker = BatchMaker(batch_host, JoinedAccess(batch_host, join, on_created, on_sealed))
        """Makes and finds batches in this transaction."""
