"""Jobs for a connection's thread, and the queue in which they wait for their turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from oxpull_async.drivers.sqlite._turn import Turn
from oxpull_async.exceptions import NotOpen

T = TypeVar("T")


class Job(Generic[T]):
    """Work for a connection's thread, and the call that awaits it in some event loop."""

    def __init__(self, work: Callable[[Turn], T], patience: float) -> None:
        self.work = work
        self.patience = patience
        self.queued_at = time.monotonic()
        self.called_off = False
        """Set by the call, seen by the thread: the job is to stop and to leave nothing behind."""
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()
        self.ended: asyncio.Future[None] = self.loop.create_future()

    def deliver(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Hand the outcome to the call, from any thread; to nobody where its loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end, answer, error)

    def _end(self, answer: Any, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(error)


class JobQueue:
    """First come, first served, but for urgent jobs. One thread takes, any thread may put.

    Every job that is put brings a ticket, and the last one closes the queue.
    A withdrawn job leaves its ticket behind, for which there is nothing to take.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Job[Any]] = deque()
        self._tickets: SimpleQueue[Job[None] | None] = SimpleQueue()
        self._last: Job[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, job: Job[Any], *, urgent: bool) -> None:
        """Raises: NotOpen once the queue is closed."""
        with self._lock:
            if self._last is not None:
                raise NotOpen("the SQLite connections are closed; open the Oxpull first (`async with ox:`)")
            if urgent:
                self._waiting.appendleft(job)
            else:
                self._waiting.append(job)
        self._tickets.put(None)

    def close(self, last: Job[None]) -> bool:
        """Let nobody in any more, and end ``last`` after those who wait; False if that was done before."""
        with self._lock:
            if self._last is not None:
                return False
            self._last = last
        self._tickets.put(last)
        return True

    def waiting(self) -> list[Job[Any]]:
        """Those whose turn has not come."""
        with self._lock:
            return list(self._waiting)

    def withdraw(self, job: Job[Any]) -> bool:
        """Take a job out again; False if its turn has come."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(job)
            return True
        return False

    def next_ticket(self) -> Job[None] | None:
        """For the thread that takes: wait until there may be something; the last job once there won't be any more."""
        return self._tickets.get()

    def take(self) -> Job[Any] | None:
        """The job whose turn it is; None if all have been withdrawn."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None
