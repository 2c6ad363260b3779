"""A connection and the thread that owns it: jobs are done one at a time, each in one hop.

Turns are dealt out inside the thread, so that they go on while an event loop
is blocked, and any thread with a loop of its own may ask for one. A job that
is cancelled while it waits never ran; one that is cancelled while it runs is
interrupted, and its end is awaited, so that nothing of it happens later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiosqlite
import anyio

from oxpull_async.drivers._shield import shielded
from oxpull_async.drivers.sqlite._jobs import Job, JobQueue
from oxpull_async.drivers.sqlite._session import CalledOff, Session, pause, roll_back
from oxpull_async.drivers.sqlite.errors import DRIVER_ERRORS, classify, is_busy
from oxpull_async.exceptions import ConnectionLost, LockNotAvailable, NotOpen, PoolTimeout
from oxpull_async.settings import Settings
from oxpull_async.telemetry import log

T = TypeVar("T")

_STINT_SECONDS = 0.02
_REST_SECONDS = 0.002
_LOOK_SECONDS = 1.0
_CANCEL_SECONDS = 10.0
_CLOSE_SECONDS = 1.0


class Line:
    """One connection whose jobs run as they are, each statement a transaction of its own."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._process = os.getpid()
        self._queue = JobQueue()
        self._connection: aiosqlite.Connection | None = None
        self._serving: asyncio.Task[None] | None = None
        self._blocked_since: float | None = None

    async def open(self, *pragmas: str) -> list[Any]:
        """Connect, run the pragmas, and return their answers. Raises: ConnectionLost, WrongDatabase."""
        try:
            return await shielded(self._open(pragmas), within=self._settings.connect_timeout)
        except TimeoutError as error:
            await self.close()
            raise ConnectionLost(f"SQLite could not open {self._path} in time") from error
        except BaseException:
            await self.close()
            raise

    async def _open(self, pragmas: Sequence[str]) -> list[Any]:
        connection = aiosqlite.connect(self._path, isolation_level=None, timeout=0)
        # Whoever forgets to close must still be able to exit. Until aiosqlite 0.21 a Connection is its own thread.
        thread: Any = getattr(connection, "_thread", connection)
        thread.daemon = True
        try:
            self._connection = await connection
            answers = [await _ask(connection, pragma) for pragma in pragmas]
        except DRIVER_ERRORS as error:
            raise classify(error) from error
        self._serving = asyncio.ensure_future(_occupy(connection, self._serve))
        return answers

    async def run(self, work: Callable[[Session], T], *, patience: float, urgent: bool = False) -> T:
        """Have ``work`` done in its turn, an urgent one before all that wait, and return its answer.

        ``patience`` bounds, in seconds, how long other connections may keep the file from us.
        Raises: NotOpen, PoolTimeout, LockNotAvailable, and what the work raises.
        """
        if os.getpid() != self._process:
            raise ConnectionLost("these SQLite connections were opened before a fork; open others in this process")
        job = Job(work, patience)
        self._queue.put(job, urgent=urgent)
        watch = _Watch(job, self._look_after)
        try:
            return await job.answer
        except asyncio.CancelledError:
            await self._call_off(job)
            raise
        finally:
            watch.end()

    def _look_after(self, job: Job[Any]) -> None:
        """Now and then: has the job waited too long for its turn, or does its statement run too long?"""
        now = time.monotonic()
        error = self._overdue(job, now)
        if error is not None and self._queue.withdraw(job):
            job.deliver(error=error)
        elif job.session is not None and job.session.statement_began is not None:
            if now - job.session.statement_began > self._settings.statement_timeout:
                self._queue.interrupt(job)

    def _overdue(self, job: Job[Any], now: float) -> Exception | None:
        if (blocked := self._blocked_since) is not None:
            if now - max(blocked, job.queued_at) < job.patience:
                return None
            return LockNotAvailable(
                f"another connection has been writing to {self._path} for more than {job.patience:g} s"
            )
        if now - job.queued_at < self._settings.pool_timeout:
            return None
        return PoolTimeout(
            f"the connection to {self._path} had no turn to spare for {self._settings.pool_timeout:g} s: "
            "more is asked of SQLite than it can do"
        )

    async def _call_off(self, job: Job[Any]) -> None:
        if self._queue.withdraw(job):
            return
        deadline = time.monotonic() + _CANCEL_SECONDS
        with anyio.CancelScope(shield=True):
            while not job.ended.done() and time.monotonic() < deadline:
                # Again and again: an interrupt that comes between two statements is lost.
                self._queue.call_off(job)
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([job.ended], timeout=0.01)
        if not job.answer.cancelled():
            job.answer.exception()  # it came together with the cancel, and nobody will look at it

    async def close(self) -> None:
        """Let those who wait have their turn, for ``close_timeout`` at most, then let go."""
        last = Job[None](lambda session: None, 0)
        if os.getpid() != self._process or not self._queue.close(last):
            return
        try:
            await shielded(self._let_go(last), within=self._settings.close_timeout)
        except TimeoutError:
            await self._break_off(last)

    async def _let_go(self, last: Job[None]) -> None:
        if self._serving is not None:
            await asyncio.wait([last.ended])
        if self._connection is not None:
            await self._connection.close()

    async def _break_off(self, last: Job[None]) -> None:
        for job in self._queue.withdraw_all():
            job.deliver(error=NotOpen("the SQLite connections were closed before this had its turn"))
        self._queue.call_off()
        try:
            await shielded(self._let_go(last), within=_CLOSE_SECONDS)
        except TimeoutError:
            log(logging.WARNING, "sqlite_close_incomplete", f"a connection to {self._path} is still busy")

    # What follows runs in the connection's thread.

    def _serve(self, connection: sqlite3.Connection) -> None:
        while (last := self._queue.next_ticket()) is None:
            self._serve_one(connection)
        last.deliver()

    def _serve_one(self, connection: sqlite3.Connection) -> None:
        job = self._queue.take(connection, in_transaction=False)
        if job is not None:
            self._do(job, job.work)

    def _do(self, job: Job[Any], work: Callable[[Session], Any]) -> None:
        assert job.session is not None
        answer: Any = None
        error: BaseException | None = None
        try:
            answer = work(job.session)
        except CalledOff:
            error = NotOpen("the SQLite connections were closed while this ran; it was rolled back")
        except BaseException as raised:  # it belongs to the caller, who is in another thread
            error = raised
        self._queue.finished()
        job.deliver(answer, error)


class Writer(Line):
    """One connection whose jobs each run as a transaction that holds the file's write lock.

    The lock is taken before it's decided whose turn it is, so that an urgent
    job overtakes those who wait for another process. After a stint of work
    the file is left alone for a moment, for others find it free only by chance.
    """

    def __init__(self, path: str, settings: Settings) -> None:
        super().__init__(path, settings)
        self._stint_began = 0.0

    def _serve_one(self, connection: sqlite3.Connection) -> None:
        if not self._begin(connection):
            return
        job = self._queue.take(connection, in_transaction=True)
        if job is None:
            roll_back(connection)
        else:
            self._do(job, lambda session: _transaction(job, session))
            self._rest()

    def _begin(self, connection: sqlite3.Connection) -> bool:
        """Whether the lock is ours; False once nobody wants it any more."""
        roll_back(connection)
        while not self._queue.is_empty:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    self._refuse(connection, error)
                    return False
                self._blocked_since = self._blocked_since or time.monotonic()
                pause()
            else:
                if self._blocked_since is not None:
                    self._blocked_since, self._stint_began = None, time.monotonic()
                return True
        self._blocked_since = None
        return False

    def _refuse(self, connection: sqlite3.Connection, error: sqlite3.Error) -> None:
        job = self._queue.take(connection, in_transaction=False)
        if job is not None:
            self._queue.finished()
            job.deliver(error=classify(error))

    def _rest(self) -> None:
        now = time.monotonic()
        if self._queue.is_empty:
            self._stint_began = now
        elif now - self._stint_began >= _STINT_SECONDS:
            time.sleep(_REST_SECONDS)
            self._stint_began = time.monotonic()


class _Watch:
    """Looks after a job from time to time, until it ends."""

    def __init__(self, job: Job[Any], look: Callable[[Job[Any]], None]) -> None:
        self._job = job
        self._look = look
        self._seconds = max(0.001, min(job.patience / 4, _LOOK_SECONDS))
        self._timer = job.loop.call_later(self._seconds, self._again)

    def end(self) -> None:
        self._timer.cancel()

    def _again(self) -> None:
        self._look(self._job)
        self._timer = self._job.loop.call_later(self._seconds, self._again)


def _transaction(job: Job[T], session: Session) -> T:
    try:
        answer = job.work(session)
        session.commit()
    except BaseException:
        roll_back(session.connection)
        raise
    return answer


async def _ask(connection: aiosqlite.Connection, pragma: str) -> Any:
    """The pragma's answer, waited for while others use the file."""
    while True:
        try:
            rows = list(await connection.execute_fetchall(pragma))
        except sqlite3.Error as error:
            if not is_busy(error):
                raise
            await anyio.sleep(0.001)
        else:
            return rows[0][0] if rows else None


async def _occupy(connection: aiosqlite.Connection, serve: Callable[[sqlite3.Connection], None]) -> None:
    """Give the connection's thread to ``serve`` until that returns.

    aiosqlite runs statements in its thread one by one, a hop each, and has no
    public way to run a function there: ``_execute`` has done it in every
    version from 0.20 to 0.22, and is used in this place alone.
    """
    await connection._execute(serve, connection._conn)  # type: ignore[no-untyped-call]
