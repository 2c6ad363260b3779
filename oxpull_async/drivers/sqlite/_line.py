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
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiosqlite
import anyio

from oxpull_async._shield import shielded
from oxpull_async.drivers.sqlite._hop import in_thread
from oxpull_async.drivers.sqlite._jobs import Job, JobQueue
from oxpull_async.drivers.sqlite._turn import CalledOff, Turn
from oxpull_async.drivers.sqlite.errors import DRIVER_ERRORS, classify, is_busy
from oxpull_async.exceptions import ConnectionLost, LockNotAvailable, NotOpen, PoolTimeout
from oxpull_async.settings import Settings
from oxpull_async.telemetry import log

T = TypeVar("T")

_LOOK_SECONDS = 1.0
_CANCEL_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_INSTRUCTIONS = 50_000
"""Of SQLite's virtual machine, some milliseconds' worth: how often a statement is asked whether it must stop."""


class Line:
    """One connection whose jobs run as they are, each statement a transaction of its own."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._process = os.getpid()
        self._queue = JobQueue()
        self._connection: aiosqlite.Connection | None = None
        self._thread: threading.Thread | None = None
        self._serving: asyncio.Task[None] | None = None
        self._running: Job[Any] | None = None
        self._turn: Turn | None = None
        self._watched: set[asyncio.AbstractEventLoop] = set()

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
        self._thread = thread
        try:
            self._connection = await connection
            answers = [await _ask(connection, pragma) for pragma in pragmas]
        except DRIVER_ERRORS as error:
            raise classify(error) from error
        self._serving = asyncio.ensure_future(in_thread(connection, self._serve))
        return answers

    async def run(self, work: Callable[[Turn], T], *, patience: float, urgent: bool = False) -> T:
        """Have ``work`` done in its turn, an urgent one before all that wait, and return its answer.

        ``patience`` bounds, in seconds, how long other connections may keep the file from us.
        Raises: NotOpen, PoolTimeout, LockNotAvailable, and what the work raises.
        """
        if os.getpid() != self._process:
            raise ConnectionLost("these SQLite connections were opened before a fork; open others in this process")
        job = Job(work, patience)
        self._queue.put(job, urgent=urgent)
        self._watch(job.loop)
        try:
            return await job.answer
        except asyncio.CancelledError:
            await self._call_off(job)
            raise

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all jobs of a loop: a timer for each would cost as much as a hop."""
        if loop not in self._watched:
            self._watched.add(loop)
            loop.call_later(_LOOK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Now and then: who has been waiting too long, because the thread is stuck, or asked for too much?"""
        self._watched.discard(loop)
        jobs = [job for job in self._queue.waiting() if job.loop is loop]
        for job in jobs:
            seconds = max(self._settings.pool_timeout, job.patience)
            if time.monotonic() - job.queued_at > seconds and self._queue.withdraw(job):
                job.deliver(
                    error=PoolTimeout(
                        f"the connection to {self._path} had no turn to spare for {seconds:g} s: "
                        "more is asked of SQLite than it can do"
                    )
                )
        if jobs:
            self._watch(loop)

    async def _call_off(self, job: Job[Any]) -> None:
        job.called_off = True
        if self._queue.withdraw(job):
            return
        deadline = time.monotonic() + _CANCEL_SECONDS
        with anyio.CancelScope(shield=True):
            while not job.ended.done() and (left := deadline - time.monotonic()) > 0:
                with suppress(asyncio.CancelledError):  # one is about to be raised
                    await asyncio.wait([job.ended], timeout=left)
        if not job.answer.cancelled():
            job.answer.exception()  # it came together with the cancel, and nobody will look at it

    async def close(self) -> None:
        """Let those who wait have their turn, for ``close_timeout`` at most, then let go."""
        if os.getpid() != self._process:
            return
        last = Job[None](lambda turn: None, 0)
        if not self._queue.close(last):
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
        # Where the file couldn't be opened, aiosqlite ends its thread without waiting for that.
        while self._thread is not None and self._thread.is_alive():  # noqa: ASYNC110 - its end sets no event
            await asyncio.sleep(0.001)

    async def _break_off(self, last: Job[None]) -> None:
        for job in self._queue.waiting():
            if self._queue.withdraw(job):
                job.deliver(error=NotOpen("the SQLite connections were closed before this had its turn"))
        if (running := self._running) is not None:
            running.called_off = True
        try:
            await shielded(self._let_go(last), within=_CLOSE_SECONDS)
        except TimeoutError:
            log(logging.WARNING, "sqlite_close_incomplete", f"a connection to {self._path} is still busy")

    # What follows runs in the connection's thread.

    def _serve(self, connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(self._must_stop, _INSTRUCTIONS)
        while (last := self._queue.next_ticket()) is None:
            self._serve_one(connection)
        last.deliver()

    def _must_stop(self) -> bool:
        return self._turn is not None and self._turn.must_stop()

    def _serve_one(self, connection: sqlite3.Connection) -> None:
        job = self._queue.take()
        if job is not None:
            self._do(job, self._begun(connection, job, in_transaction=False), job.work)

    def _begun(self, connection: sqlite3.Connection, job: Job[Any], *, in_transaction: bool) -> Turn:
        began = time.monotonic()
        return Turn(
            connection,
            lambda: job.called_off,
            lambda: self._dismiss_impatient(began, None),
            patience=job.patience,
            statement_seconds=self._settings.statement_timeout,
            in_transaction=in_transaction,
        )

    def _dismiss_impatient(self, since: float, cause: sqlite3.Error | None) -> None:
        """Let go of those who won't wait longer for the transaction that has kept them since then."""
        now = time.monotonic()
        for job in self._queue.waiting():
            if now - max(since, job.queued_at) >= job.patience and self._queue.withdraw(job):
                job.deliver(error=_kept_out(self._path, job.patience, cause))

    def _do(self, job: Job[Any], turn: Turn, work: Callable[[Turn], Any]) -> None:
        answer: Any = None
        error: BaseException | None = None
        self._running, self._turn = job, turn
        try:
            answer = work(turn)
        except CalledOff:
            error = NotOpen("the SQLite connections were closed while this ran; it was rolled back")
        except BaseException as raised:
            error = raised
        self._running = self._turn = None
        job.deliver(answer, error)


def _kept_out(path: str, patience: float, cause: sqlite3.Error | None) -> LockNotAvailable:
    who = "a transaction of this Oxpull" if cause is None else "another connection"
    error = LockNotAvailable(f"{who} has been writing to {path} for more than {patience:g} s")
    if cause is not None:
        error.code, error.__cause__ = cause.sqlite_errorcode, cause
    return error


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
