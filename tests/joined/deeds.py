"""What others have done to a key and its holder, before and after a caller's transaction first read something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID, uuid4

from tests.integration.competitor import Competitor
from tests.joined.calls import SEND, hold, key_of

Before: TypeAlias = Callable[[Competitor], UUID | None]
"""Makes the holder of the call `SEND(1)`, and says which it is."""
After: TypeAlias = Callable[[Competitor, UUID], None]


def _free(competitor: Competitor) -> None:
    return None


def _held(status: str) -> Before:
    return lambda competitor: hold(competitor, 1, status=status)


def _row_gone(competitor: Competitor) -> UUID:
    gone = uuid4()
    competitor.insert_lock(key_of(1), gone)
    return gone


def _names_none(competitor: Competitor) -> None:
    competitor.insert_lock(key_of(1), None)


BEFORE: Mapping[str, Before] = {
    "free": _free,
    "ready": _held("READY"),
    "running": _held("RUNNING"),
    "failed": _held("FAILED"),
    "successful": _held("SUCCESSFUL"),
    "waiting": _held("WAITING"),
    "row-gone": _row_gone,
    "names-none": _names_none,
}


def _nothing(competitor: Competitor, holder: UUID) -> None:
    """Nobody did anything."""


def _created(competitor: Competitor, holder: UUID) -> None:
    hold(competitor, 1)


def _created_and_settled(competitor: Competitor, holder: UUID) -> None:
    hold(competitor, 1, status="FAILED")


def _becomes(status: str) -> After:
    return lambda competitor, holder: competitor.set_task(holder, status=status)


def _deleted(competitor: Competitor, holder: UUID) -> None:
    competitor.delete_task(holder)


def _lock_pruned(competitor: Competitor, holder: UUID) -> None:
    competitor.run("DELETE FROM oxpull_oxpulluniquelock")


def _taken_over(competitor: Competitor, holder: UUID) -> None:
    """Settled if it wasn't, and its lock pointed at a new task, as a single transaction sees it."""
    competitor.begin()
    competitor.run("UPDATE django_ox_oxtask SET status = 'FAILED' WHERE id = ?", holder)
    competitor.run("DELETE FROM oxpull_oxpulluniquelock")
    competitor.insert_unique(key_of(1), task_path=SEND, args="[1]")
    competitor.commit()


AFTER: Mapping[str, After] = {
    "nothing": _nothing,
    "created": _created,
    "created-and-settled": _created_and_settled,
    "claimed": _becomes("RUNNING"),
    "succeeded": _becomes("SUCCESSFUL"),
    "lost": _becomes("LOST"),
    "retried": _becomes("READY"),
    "deleted": _deleted,
    "lock-pruned": _lock_pruned,
    "taken-over": _taken_over,
}

STORIES = [
    (before, "nothing") for before in BEFORE
] + [
    ("free", "created"), ("free", "created-and-settled"),
    ("ready", "claimed"), ("ready", "succeeded"), ("ready", "lost"), ("ready", "deleted"), ("ready", "taken-over"),
    ("running", "succeeded"), ("running", "retried"),
    ("failed", "retried"), ("failed", "taken-over"), ("failed", "deleted"), ("failed", "lost"),
    ("failed", "lock-pruned"),
]  # fmt: skip
