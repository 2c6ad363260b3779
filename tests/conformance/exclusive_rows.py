"""Keys and who wants them, with defaults; and a way to let leases run out without waiting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from oxpull_async._ids import new_id
from oxpull_async.core.exclusivity import mutex_key, shown_name
from oxpull_async.ports import Store
from oxpull_async.ports_exclusive import (
    Candidate,
    ExclusiveClaims,
    HeldPlace,
    OnConflict,
    TaskWanted,
    Waiting,
    Wanted,
)
from tests.conformance.rows import now, request
from tests.integration.competitor import Competitor

KEY = "feed:one"


def wanted(name: str = KEY, *, owner: UUID | None = None, capacity: int = 1, lease: float = 60.0) -> Wanted:
    """A wish for a place of this key."""
    return Wanted(mutex_key(name), shown_name(name), owner or new_id(), capacity, lease)


async def acquired(store: Store, wish: Wanted | None = None) -> HeldPlace:
    """A place, which is there."""
    answer = await ask(store, wish or wanted())
    assert isinstance(answer, HeldPlace)
    return answer


async def in_line(store: Store, wish: Wanted | None = None) -> Wanted:
    """A caller who stands in line."""
    wish = wish or wanted()
    assert isinstance(await ask(store, wish), Waiting)
    return wish


async def ask(store: Store, wish: Wanted, patience: float | None = 30.0) -> HeldPlace | Waiting:
    answer, _ = await store.exclusive.acquire(wish, patience_seconds=patience)
    return answer


def run_out(competitor: Competitor, table: str = "holder") -> None:
    """Every lease (or reservation, or place in line) is over now."""
    competitor.run(f"UPDATE oxpull_async_mutex_{table} SET expires_at = ?", now() - timedelta(seconds=1))


def counts(competitor: Competitor) -> tuple[int, int]:
    """How many holders, and how many waiters."""
    return tuple(
        competitor.rows(f"SELECT COUNT(*) FROM oxpull_async_mutex_{table}")[0][0] for table in ("holder", "waiter")
    )


def by_first_argument(on_conflict: OnConflict = OnConflict.WAIT, *, capacity: int = 1, lease: float = 60.0) -> Any:
    """Keys of tasks whose first argument says which."""

    def keys_of(candidates: Sequence[Candidate]) -> list[TaskWanted]:
        return [
            TaskWanted(
                wanted(f"key:{json.loads(candidate.args)[0]}", owner=candidate.id, capacity=capacity, lease=lease),
                on_conflict,
                json.dumps([*json.loads(candidate.errors), {"exception_class_path": "a.Busy", "traceback": "busy"}]),
            )
            for candidate in candidates
        ]

    return keys_of


async def claim(
    store: Store, on_conflict: OnConflict = OnConflict.WAIT, *, capacity: int = 1, look: int = 100, **changes: Any
) -> ExclusiveClaims:
    return await store.exclusive.claim(request(**changes), by_first_argument(on_conflict, capacity=capacity), look=look)
