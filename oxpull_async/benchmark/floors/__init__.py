"""Floors: the bare driver doing the least SQL that could serve, into the same table with the same indexes.

A floor knows no task, no signature, no checks and no key. It's what a careful person would write by hand for this
one table, and what everything above it is measured against.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias, cast
from uuid import uuid4

from oxpull_async.clock import system_time
from oxpull_async.drivers import engine_of
from oxpull_async.settings import Settings

TASK_PATH: Final = "floor.task"
COLUMNS: Final = (
    "id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status, "
    "attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch"
)
COLUMN_COUNT: Final = len(COLUMNS.split(","))
TABLES: Final = ("oxpull_oxpullbatchmember", "oxpull_oxpullbatch", "django_ox_oxtask", "oxpull_oxpulluniquelock")
CLAIMED_AT_ONCE: Final = 200

Values: TypeAlias = tuple[Any, ...]


class Floor(Protocol):
    """One engine's floor, over connections of its own."""

    async def facts(self) -> Mapping[str, str]:
        """The server's settings that decide what a COMMIT costs."""
        ...

    async def ping(self) -> None:
        """The least that can be asked of the server, over one connection."""
        ...

    async def empty(self) -> None:
        """Delete every task, lock and batch."""
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

    async def drain(self) -> None:
        """Claim the rows that ``in_bulk`` wrote, 200 at a time, and settle them, until none is left."""
        ...


def open_floor(url: str, settings: Settings) -> AbstractAsyncContextManager[Floor]:
    """Connect the floor of the URL's engine, which has no more connections than the settings give to a pool."""
    module = import_module(f"{__name__}.{engine_of(url)}")
    return cast("AbstractAsyncContextManager[Floor]", module.open_floor(url, settings))


def task_rows(count: int) -> Iterator[Values]:
    """New rows, in the order of ``COLUMNS``; ids are `uuid.UUID`, instants are aware."""
    for number in range(count):
        args = json.dumps([number])
        now = system_time()
        yield (
            uuid4(), TASK_PATH, args, "{}", "default", 0, False, "default", "READY",
            0, 3, "[]", "[]", now, 0,
        )  # fmt: skip
