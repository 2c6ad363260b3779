"""Floors: the bare driver doing the least SQL that could serve, into the same table with the same indexes.

A floor knows no task, no signature, no checks and no key. It's what a careful person would write by hand for this
one table, and what everything above it is measured against.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

COLUMNS = (
    "id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status, "
    "attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch"
)
COLUMN_COUNT = len(COLUMNS.split(","))
TABLES = ("oxpull_oxpullbatchmember", "oxpull_oxpullbatch", "django_ox_oxtask", "oxpull_oxpulluniquelock")
POOL_SIZE = 10

Values: TypeAlias = tuple[Any, ...]


class Floor(Protocol):
    """One engine's floor, over connections of its own."""

    async def empty(self) -> None:
        """Delete every task and lock."""
        ...

    async def one_after_another(self, count: int) -> None:
        """One INSERT per row over one connection, each durable before the next begins."""
        ...

    async def at_once(self, count: int, coroutines: int) -> None:
        """The same rows from many coroutines, each INSERT durable before its coroutine goes on."""
        ...

    async def in_bulk(self, count: int) -> None:
        """All rows in one transaction, the quickest way that the engine has."""
        ...


class OpenFloor(Protocol):
    """Connects a floor to a database URL."""

    def __call__(self, url: str) -> AbstractAsyncContextManager[Floor]: ...


def task_rows(count: int) -> Iterator[Values]:
    """New rows, in the order of ``COLUMNS``; ids are `uuid.UUID`, instants are aware."""
    for number in range(count):
        args = json.dumps([number])
        now = datetime.now(UTC)
        yield (
            uuid.uuid4(), "bench.note", args, "{}", "default", 0, False, "default", "READY",
            0, 3, "[]", "[]", now, 0,
        )  # fmt: skip
