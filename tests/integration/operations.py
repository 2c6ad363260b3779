"""The enqueueing operations that are killed and cancelled at every point, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from oxpull_async import EnqueueResult, Oxpull
from oxpull_async.core.keys import unique_key
from oxpull_async.enqueueing import expectations
from tests.integration.competitor import Competitor

PATH = "proof.tasks.unique"
PLAIN_PATH = "proof.tasks.plain"
STRAY = UUID("018f0000-0000-7000-8000-000000000000")
"""A task that never was, for a lock to name."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One way of enqueueing: in what state it finds its keys, and the call itself."""

    name: str
    call: Callable[[Oxpull], Awaitable[EnqueueResult | list[EnqueueResult]]]
    unique: bool
    prepare: Callable[[Competitor], None] = lambda competitor: None
    presumed_free: bool = False
    """Whether the keys of this task were free so far, so that these are thought to be free too."""

    async def results(self, ox: Oxpull) -> list[EnqueueResult]:
        with pytest.MonkeyPatch.context() as patch:
            if self.presumed_free:
                patch.setattr(expectations, "FREE_IN_A_ROW", 0)
            found = await self.call(ox)
        return found if isinstance(found, list) else [found]


def key_of(argument: str) -> str:
    return unique_key("default", PATH, "default", [argument], {})


def _plain(ox: Oxpull) -> Any:
    return ox.reference(PLAIN_PATH)


def _unique(ox: Oxpull) -> Any:
    return ox.reference(PATH, unique=True)


def _pending(competitor: Competitor, argument: str = "a") -> None:
    competitor.insert_unique(key_of(argument), task_path=PATH)


def _settled(competitor: Competitor, argument: str = "a") -> None:
    competitor.insert_unique(
        key_of(argument), task_path=PATH, status="FAILED", finished_at=datetime(2020, 1, 1, tzinfo=UTC)
    )


def _one_of_each(competitor: Competitor) -> None:
    _pending(competitor, "a")
    _settled(competitor, "b")
    competitor.insert_lock(key_of("c"), None)


OPERATIONS = [
    Operation("a plain call", lambda ox: _plain(ox).enqueue("a"), unique=False),
    Operation("many plain calls", lambda ox: _plain(ox).enqueue_many([("a",), ("b",), ("c",)]), unique=False),
    Operation("a new key", lambda ox: _unique(ox).enqueue("a"), unique=True),
    Operation("a pending key", lambda ox: _unique(ox).enqueue("a"), unique=True, prepare=_pending),
    Operation("a stale key", lambda ox: _unique(ox).enqueue("a"), unique=True, prepare=_settled),
    Operation(
        "a lock on nothing",
        lambda ox: _unique(ox).enqueue("a"),
        unique=True,
        prepare=lambda competitor: competitor.insert_lock(key_of("a"), STRAY),
    ),
    Operation("a new key, as expected", lambda ox: _unique(ox).enqueue("a"), unique=True, presumed_free=True),
    Operation(
        "a pending key, against expectation",
        lambda ox: _unique(ox).enqueue("a"),
        unique=True,
        prepare=_pending,
        presumed_free=True,
    ),
    Operation(
        "a stale key, against expectation",
        lambda ox: _unique(ox).enqueue("a"),
        unique=True,
        prepare=_settled,
        presumed_free=True,
    ),
    Operation(
        "many keys",
        lambda ox: _unique(ox).enqueue_many([("d",), ("c",), ("b",), ("a",), ("d",)]),
        unique=True,
        prepare=_one_of_each,
    ),
]
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def assert_sound(competitor: Competitor) -> None:
    """Every pending unique row is the one its lock names, every lock names a row: nothing is written by half."""
    locks = competitor.locks()
    rows = {
        task_id: status
        for task_id, status in competitor.statuses().items()
        if competitor.row(task_id, "task_path") == (PATH,)
    }
    pending = {task_id for task_id, status in rows.items() if status in ("READY", "RUNNING")}
    assert set(locks.values()) <= {None, STRAY, *rows}
    holders = [task_id for task_id in locks.values() if task_id in pending]
    assert sorted(holders) == sorted(pending)


def assert_done(competitor: Competitor, operation: Operation, results: list[EnqueueResult]) -> None:
    """What the results say is what is there."""
    statuses = competitor.statuses()
    assert all(statuses[result.id] == "READY" for result in results)
    assert_sound(competitor)
    if operation.unique:
        locks = competitor.locks()
        assert all(locks[key_of(result.args[0])] == result.id for result in results if result.args)
