"""The connection that writes: each of its jobs is a transaction that holds the file's write lock."""

from __future__ import annotations

import sqlite3
import time
from typing import TypeVar

from oxpull_async.drivers.sqlite._jobs import Job
from oxpull_async.drivers.sqlite._line import Line
from oxpull_async.drivers.sqlite._turn import Turn, pause, roll_back
from oxpull_async.drivers.sqlite.errors import classify, is_busy
from oxpull_async.settings import Settings

T = TypeVar("T")

_STINT_SECONDS = 0.02
_REST_SECONDS = 0.002


class Writer(Line):
    """BEGIN IMMEDIATE, the job, COMMIT, in one hop.

    The lock is taken before it's decided whose turn it is, so that an urgent
    job overtakes those who wait for another process, and so that each job's
    own patience decides when it gives up. After a stint of work the file is
    left alone for a moment, since others find it free only by chance.
    """

    def __init__(self, path: str, settings: Settings) -> None:
        super().__init__(path, settings)
        self._stint_began = 0.0

    def _serve_one(self, connection: sqlite3.Connection) -> None:
        if not self._begin(connection):
            return
        job = self._queue.take()
        if job is None:
            roll_back(connection)
            return
        turn = self._begun(connection, job, in_transaction=True)
        self._do(job, turn, lambda turn: _transaction(job, turn))
        self._rest()

    def _begin(self, connection: sqlite3.Connection) -> bool:
        """Whether the lock is ours; False once nobody wants it any more."""
        roll_back(connection)
        blocked_since: float | None = None
        while not self._queue.is_empty:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    self._refuse(error)
                    return False
                blocked_since = blocked_since or time.monotonic()
                self._dismiss_impatient(blocked_since, error)
                pause()
            else:
                if blocked_since is not None:
                    self._stint_began = time.monotonic()
                return True
        return False

    def _refuse(self, error: sqlite3.Error) -> None:
        job = self._queue.take()
        if job is not None:
            job.deliver(error=classify(error))

    def _rest(self) -> None:
        now = time.monotonic()
        if self._queue.is_empty:
            self._stint_began = now
        elif now - self._stint_began >= _STINT_SECONDS:
            time.sleep(_REST_SECONDS)
            self._stint_began = time.monotonic()


def _transaction(job: Job[T], turn: Turn) -> T:
    try:
        answer = job.work(turn)
        turn.commit()
    except BaseException:
        roll_back(turn.connection)
        raise
    return answer
