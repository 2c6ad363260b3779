"""``ox.queues``: queues stopped and let go again, or limited, in all processes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oxpull_async._contention import retrying
from oxpull_async.core.exclusivity import check_places
from oxpull_async.core.names import check_queue_name
from oxpull_async.ports_limits import LimitedQueue, LimitStore, PausedQueue
from oxpull_async.runtime.hints import ReadyHints
from oxpull_async.runtime.places import QueuePlaces


class Queues:
    """Pauses, resumes and limits queues. Rows are enqueued as ever; what runs already runs on."""

    def __init__(self, store: Callable[[], LimitStore], ready: ReadyHints, places: QueuePlaces) -> None:
        self._store = store
        self._ready = ready
        self._places = places

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

    async def limit(self, queue_name: str, places: int | None) -> bool:
        """Have no more than so many rows of this queue run at once, over all workers of this library.

        From the commit on; None lifts the limit. Returns whether that is
        another limit than before. A row counts as long as it's RUNNING,
        whoever runs it: that of a worker that has died, until its lease is
        over and it's reaped. Raises: InvalidTask.
        """
        name = check_queue_name(queue_name)
        checked = None if places is None else check_places(places)
        has_changed = await retrying(lambda: self._store().limit_queue(name, checked))
        self._places.forget()
        self._ready.enqueued()
        return has_changed

    async def limited(self) -> Sequence[LimitedQueue]:
        """The queues with a limit, by name, each with how many of its rows run."""
        return await self._store().limited_queues()
