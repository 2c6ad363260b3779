"""The verdicts of unique enqueue: who holds a key, and until when.

A key is held while the task row that its lock names is READY or RUNNING. Any
other status, a missing row and a lock without a task id free it: release is
derived from the row and never depends on a signal, a timer or a process that
is shutting down.
"""

from __future__ import annotations

from typing import Final

from oxpull_async.core.statuses import PENDING

MAX_PASSES: Final = 5
"""How often a unique enqueue looks again before it gives up with UniqueEnqueueRace."""

_PENDING: Final = frozenset(str(status) for status in PENDING)


def is_pending(status: str) -> bool:
    """Whether a row of this status holds its unique key. Unknown statuses don't."""
    return status in _PENDING
