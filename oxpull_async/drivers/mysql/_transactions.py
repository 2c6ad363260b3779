"""Transactions as steps of a procedure, and waiting for locks in passes of a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.exceptions import LockNotAvailable, SavepointMissing

T = TypeVar("T")

_SQL = load_statements(__package__, "transactions.sql")
BEGIN = _SQL["begin"]
COMMIT = _SQL["commit"]
ROLLBACK = _SQL["rollback"]
_PAUSE = _SQL["pause"]
_SAVEPOINT = _SQL["savepoint"]
_ROLLBACK_TO_SAVEPOINT = _SQL["rollback_to_savepoint"]

SHORTEST_WAIT_SECONDS = 1.0
"""How long a wait for a row takes at least, if it's in vain."""


def repeated(attempt: Callable[[], Procedure[T]], wait_seconds: float) -> Procedure[T]:
    """Run an attempt that has a transaction of its own until it gets its locks or the time is over.

    The server ends each wait after a second, and the attempt with it; so what
    a cancelled caller leaves behind ends as soon. For a shorter wait the
    attempt must not wait itself: it is repeated after pauses.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return (yield from attempt())
        except LockNotAvailable:
            yield ROLLBACK()
            if time.monotonic() >= deadline:
                raise
            if wait_seconds < SHORTEST_WAIT_SECONDS:
                yield _PAUSE()


def repeated_inside(attempt: Callable[[], Procedure[T]], wait_seconds: float) -> Procedure[T]:
    """The same for a single statement within a transaction that goes on after it."""
    deadline = time.monotonic() + wait_seconds
    while True:
        yield _SAVEPOINT()
        try:
            return (yield from attempt())
        except LockNotAvailable as unavailable:
            try:
                yield _ROLLBACK_TO_SAVEPOINT()
            except SavepointMissing:
                raise unavailable from None
            if time.monotonic() >= deadline:
                raise
