"""Which queues have limits, and how many of their rows could be claimed now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from oxpull_async._contention import retrying
from oxpull_async.ports import ClaimRequest
from oxpull_async.ports_limits import LimitedQueue, LimitStore

_BLIND_SECONDS: Final = 1.0
"""How long a process without limited queues takes it for granted that there are none."""


class QueuePlaces:
    """What the workers of one ``Oxpull`` know of limited queues.

    A claim passes over their rows by itself, so what isn't known here is only
    claimed later, never too much of it.
    """

    def __init__(self, store: Callable[[], LimitStore]) -> None:
        self._store = store
        self._names: frozenset[str] = frozenset()
        self._none_until = -math.inf

    def forget(self) -> None:
        """Look again: something has changed."""
        self._none_until = -math.inf

    def are_in(self, queue_name: str) -> bool:
        """Whether a row of this queue that has ended makes way for another."""
        return queue_name in self._names

    async def open(self, request: ClaimRequest) -> Iterator[ClaimRequest]:
        """The claim, once for each limited queue that has free places, and for no more rows than those."""
        if time.monotonic() < self._none_until:
            return iter(())
        found = await retrying(self._store().limited_queues)
        self._names = frozenset(queue.queue_name for queue in found)
        if not found:
            self._none_until = time.monotonic() + _BLIND_SECONDS
        return _requests(request, found)


def _requests(request: ClaimRequest, queues: Sequence[LimitedQueue]) -> Iterator[ClaimRequest]:
    for queue in queues:
        name, free = queue.queue_name, queue.places - queue.running
        if free > 0 and (request.queues is None or name in request.queues):
            yield replace(request, queues=(name,), limited_queue=name, limit=min(request.limit, free))
