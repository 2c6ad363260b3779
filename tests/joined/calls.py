"""The task that is enqueued here, its keys, and what must be true of the rows whatever happened."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from oxpull_async.core.keys import unique_key
from tests.integration.competitor import Competitor

SEND = "proof.send"
PENDING = ("READY", "RUNNING")
SETTLED = ("SUCCESSFUL", "FAILED", "LOST", "DISCARDED")


def key_of(*args: int) -> str:
    """The unique key of `SEND` with these arguments."""
    return unique_key("default", SEND, "default", list(args), {})


def hold(competitor: Competitor, *args: int, **columns: Any) -> UUID:
    """Have the competitor write the lock and the task row of a call."""
    return competitor.insert_unique(key_of(*args), task_path=SEND, args=str(list(args)), **columns)


def pending_of(competitor: Competitor, *args: int) -> list[UUID]:
    """The pending task rows of a call, as committed."""
    found = competitor.rows("SELECT id, args, status FROM django_ox_oxtask WHERE task_path = ?", SEND)
    wanted = list(args)
    return [UUID(str(id)) for id, stored, status in found if _list(stored) == wanted and status in PENDING]


def own_rows(competitor: Competitor) -> set[int]:
    """The callers' own rows, as committed."""
    return {n for (n,) in competitor.rows("SELECT n FROM orders")}


def no_lock_without_task_nor_task_without_lock(competitor: Competitor) -> None:
    """Holds wherever nobody pruned or deleted by hand, and no task was superseded."""
    locks, tasks = competitor.locks(), competitor.statuses()
    assert sorted(map(str, locks.values())) == sorted(map(str, tasks)), (locks, tasks)


def _list(stored: object) -> object:
    return json.loads(stored) if isinstance(stored, str) else stored
