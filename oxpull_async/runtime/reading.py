"""Reads task rows for the results in callers' hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import uniform
from typing import Protocol
from uuid import UUID

import anyio

from oxpull_async._contention import retrying
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.statuses import SETTLED
from oxpull_async.exceptions import TaskResultDoesNotExist
from oxpull_async.ports import TaskRow
from oxpull_async.results import TaskResult, task_result
from oxpull_async.runtime.hints import SettleHints

_FIRST_POLL_SECONDS = 0.02
_LAST_POLL_SECONDS = 0.5


class Rows(Protocol):
    """Where rows are read: a store."""

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        """The task row as last committed."""
        ...


class Reader:
    """A ``ResultSource`` over the open store."""

    def __init__(self, store: Callable[[], Rows], settled: SettleHints) -> None:
        self._store = store
        self._settled = settled

    async def result(self, task_id: UUID | str) -> TaskResult:
        """The row with this id, for a caller's hands. Raises: TaskResultDoesNotExist, for a malformed id too."""
        try:
            parsed = task_id if isinstance(task_id, UUID) else UUID(str(task_id))
        except ValueError as error:
            raise TaskResultDoesNotExist(f"{task_id!r} is not a task id: it must be a UUID") from error
        return task_result(await self.read_row(parsed), self)

    async def read_row(self, task_id: UUID) -> TaskRow:
        """The row as committed. Raises: TaskResultDoesNotExist."""
        store = self._store()
        row = await retrying(lambda: store.get_task(task_id))
        if row is None:
            raise TaskResultDoesNotExist(
                f"there is no task row {task_id}: it was rolled back, pruned, or is in another database"
            )
        return row

    async def settled_row(self, task_id: UUID, timeout: Duration | None) -> TaskRow:
        """The row once it's settled: woken by this process's workers, polled for all others."""
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        pause = _FIRST_POLL_SECONDS
        with self._settled.subscribed(task_id) as hint:
            while True:
                hint.clear()
                row = await self.read_row(task_id)
                if row.status in SETTLED:
                    return row
                left = pause if deadline is None else min(pause, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"task {task_id} was still {row.status} after {timeout} s")
                with anyio.move_on_after(uniform(0.5, 1) * left if left == pause else left):
                    await hint.wait()
                pause = min(pause * 2, _LAST_POLL_SECONDS)
