"""``ox.queues``: queues stopped and let go again, in all processes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oxpull_async._contention import retrying
from oxpull_async.core.names import check_queue_name
from oxpull_async.ports_limits import LimitStore, PausedQueue
from oxpull_async.runtime.hints import ReadyHints


class Queues:
    """Pauses and resumes queues. Rows are enqueued as ever; what runs already runs on."""

    def __init__(self, store: Callable[[], LimitStore], ready: ReadyHints) -> None:
        self._store = store
        self._ready = ready

    async def pause(self, queue_name: str) -> bool:
        """Have no worker of this library claim a row of this queue; returns whether it wasn't paused before.

        From the commit on, everywhere. Django workers don't know of it.
        Raises: InvalidTask for what is no queue's name.
        """
        name = check_queue_name(queue_name)
        return await retrying(lambda: self._store().pause_queue(name))

    async def resume(self, queue_name: str) -> bool:
        """Have its rows claimed again; returns whether it was paused."""
        name = check_queue_name(queue_name)
        was_paused = await retrying(lambda: self._store().resume_queue(name))
        self._ready.enqueued()
        return was_paused

    async def paused(self) -> Sequence[PausedQueue]:
        """The paused queues, by name, each with the time of its pause."""
        return await self._store().paused_queues()
