"""Jobs for a connection's thread, and the queue in which they wait for their turn."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from oxpull_async.drivers.sqlite._session import Session
from oxpull_async.exceptions import NotOpen

T = TypeVar("T")


class Job(Generic[T]):
    """Work for a connection's thread, and the call that awaits it in some event loop."""

    def __init__(self, work: Callable[[Session], T], patience: float) -> None:
        self.work = work
        self.patience = patience
        self.queued_at = time.monotonic()
        self.session: Session | None = None
        """Set when its turn comes."""
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
        self._running: Job[Any] | None = None
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

    def withdraw(self, job: Job[Any]) -> bool:
        """Take a job out again; False if its turn has come."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(job)
            return True
        return False

    def withdraw_all(self) -> list[Job[Any]]:
        """Take out all that wait."""
        with self._lock:
            jobs = list(self._waiting)
            self._waiting.clear()
        return jobs

    def call_off(self, job: Job[Any] | None = None) -> None:
        """Stop what a running job (or whichever runs) is doing, and never a statement of its successor."""
        with self._lock:
            running = self._running
            if running is not None and running.session is not None and job in (running, None):
                running.session.called_off = True
                running.session.connection.interrupt()

    def interrupt(self, job: Job[Any]) -> None:
        """Stop the statement that a running job is at."""
        with self._lock:
            if job is self._running and job.session is not None:
                job.session.connection.interrupt()

    # What follows is for the thread that takes.

    def next_ticket(self) -> Job[None] | None:
        """Wait until there may be something to take; the last job once there won't be any more."""
        return self._tickets.get()

    def take(self, connection: sqlite3.Connection, *, in_transaction: bool) -> Job[Any] | None:
        """The job whose turn it is; None if all have been withdrawn."""
        with self._lock:
            if not self._waiting:
                return None
            job = self._running = self._waiting.popleft()
            job.session = Session(connection, job.patience, in_transaction=in_transaction)
            return job

    def finished(self) -> None:
        """The job that was taken is done; nobody can stop it any more."""
        with self._lock:
            self._running = None
