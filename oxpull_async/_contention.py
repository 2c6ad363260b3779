"""What to do when a transaction of our own meets others: repeat it on a fresh one, within bounds."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from oxpull_async.exceptions import ConnectionLost, DeadlockDetected, SerializationFailure, StoreError

T = TypeVar("T")

_ATTEMPTS: Final[dict[type[StoreError], int]] = {
    DeadlockDetected: 5,
    SerializationFailure: 10,
    ConnectionLost: 2,
}
_PAUSE_SECONDS: Final = 0.05
_MAX_DOUBLINGS: Final = 4


async def retrying(operation: Callable[[], Awaitable[T]], *, deadline: float | None = None) -> T:
    """Run an operation that owns its transaction, again after a deadlock or serialization failure.

    It must be safe to repeat even if an earlier try has been committed unknown
    to us, which rows with ids of our own are. ``deadline`` is monotonic time:
    no further try begins after it. The last error is raised when the tries are
    spent.
    """
    failures: Counter[type[StoreError]] | None = None
    while True:
        try:
            return await operation()
        except (DeadlockDetected, SerializationFailure, ConnectionLost) as error:
            kind = type(error)
            failures = Counter() if failures is None else failures
            failures[kind] += 1
            out_of_time = deadline is not None and time.monotonic() >= deadline
            if failures[kind] >= _ATTEMPTS[kind] or out_of_time:
                raise
            pause = _PAUSE_SECONDS * 2 ** min(failures[SerializationFailure], _MAX_DOUBLINGS)
        await anyio.sleep(random.uniform(0, pause))
