"""The verdicts of unique enqueue: who holds a key and until when, and what a duplicate does to its holder.

A key is held while the task row that its lock names is READY or RUNNING. Any
other status, a missing row and a lock without a task id free it: release is
derived from the row and never depends on a signal, a timer or a process that
is shutting down.

A key with other terms (held until its task starts, or for a window of time)
is held by a *hold*, a row of this library's own. It too is judged by the task
row's status, and by an instant that was stored with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from oxpull_async.core.statuses import PENDING, TaskStatus

MAX_PASSES: Final = 5
"""How often a unique enqueue looks again before it gives up with UniqueEnqueueRace."""

HeldWhile: TypeAlias = Literal["pending", "ready"]
"""Until when a task holds its key: until it's settled, or until it starts."""
OnDuplicate: TypeAlias = Literal["return", "raise", "reschedule", "replace", "rerun"]
"""What an enqueue does that finds its key held."""

_PENDING: Final = frozenset(str(status) for status in PENDING)
_HOLDING: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"pending": _PENDING, "ready": frozenset({str(TaskStatus.READY)})}
)


def is_pending(status: str) -> bool:
    """Whether a row of this status holds its unique key. Unknown statuses don't."""
    return status in _PENDING


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """How long a hold lasts: by the status of its task, and for so many seconds after the enqueue at least."""

    held_while: HeldWhile
    window_seconds: float | None

    def held_until(self, enqueued_at: datetime) -> datetime | None:
        """The end of the window, which is stored with the hold."""
        return None if self.window_seconds is None else enqueued_at + timedelta(seconds=self.window_seconds)

    def is_held(self, status: str | None, held_until: datetime | None, now: datetime) -> bool:
        """Whether a task of this status still has the key; None, for a row that is gone, never has."""
        if status is None:
            return False
        return status in _HOLDING[self.held_while] or (held_until is not None and now < held_until)


class Deed(Enum):
    """What a duplicate does."""

    RETURN = auto()
    """Nothing: the holder is returned as it is."""
    RAISE = auto()
    """It's refused, and told who the holder is."""
    MOVE = auto()
    """The holder's ``run_after`` becomes the duplicate's."""
    REPLACE = auto()
    """The holder takes the duplicate's arguments."""
    RUN_AGAIN = auto()
    """The holder runs already: when it ends, the duplicate is enqueued."""


_DEEDS: Final[Mapping[OnDuplicate, tuple[Deed, Deed]]] = MappingProxyType(
    {
        "return": (Deed.RETURN, Deed.RETURN),
        "raise": (Deed.RAISE, Deed.RAISE),
        "reschedule": (Deed.MOVE, Deed.RETURN),
        "replace": (Deed.REPLACE, Deed.RETURN),
        "rerun": (Deed.REPLACE, Deed.RUN_AGAIN),
    }
)


def decide_deed(on_duplicate: OnDuplicate, status: str) -> Deed:
    """What to do to a holder of this status. What has run, within its window, is only ever returned."""
    if_ready, if_running = _DEEDS[on_duplicate]
    if status == TaskStatus.READY:
        return if_ready
    if status == TaskStatus.RUNNING:
        return if_running
    return Deed.RAISE if if_ready is Deed.RAISE else Deed.RETURN


def capped_run_after(
    wanted: datetime | None, enqueued_at: datetime, max_delay_seconds: float | None
) -> datetime | None:
    """When a task may run that was asked for at ``wanted``: no later than so long after its enqueue."""
    if wanted is None or max_delay_seconds is None:
        return wanted
    return min(wanted, enqueued_at + timedelta(seconds=max_delay_seconds))


class LateRerun(Enum):
    """What becomes of a rerun whose key has another holder by the time that it's due."""

    REPLACE = auto()
    """The holder waits still, and takes the rerun's arguments."""
    FOLLOW = auto()
    """The holder runs: the rerun waits for that one's end."""
    DROP = auto()
    """The holder was enqueued later than the rerun, so it does what the rerun would, with newer arguments."""


def decide_late_rerun(asked_at: datetime, status: str, enqueued_at: datetime) -> LateRerun:
    """Whose arguments are the latest, and whether a run that starts after the rerun was asked for is to come."""
    if enqueued_at > asked_at:
        return LateRerun.DROP
    return LateRerun.REPLACE if status == TaskStatus.READY else LateRerun.FOLLOW
