"""What hooks and backoff functions are told: task rows as the worker knows them, without reading them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import anyio

from oxpull_async._contention import retrying
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.exceptions import OxpullError
from oxpull_async.ports import Claim, Outcome, TaskRow
from oxpull_async.results import TaskResult, task_result
from oxpull_async.runtime.hooks import Event
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reading import Reader
from oxpull_async.telemetry import log

_STARTED_SECONDS: Final = 5.0
_MOST_UNTOLD: Final = 10_000


class Reports:
    """Calls hooks beside the work: one that is slow, hangs or raises holds nothing up. A report never fails."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._reader = Reader(lambda: host.store, host.settle_hints)
        self._telling: set[asyncio.Task[None]] = set()
        self._untold = 0

    @property
    def wants_started(self) -> bool:
        """Whether anybody is to be told of an attempt before it begins."""
        return self._host.hooks.wants("started")

    async def started(self, claim: Claim) -> None:
        """Tell that an attempt is about to begin; that isn't put off by more than a few seconds."""
        row = task_row(claim, TaskStatus.RUNNING)
        with anyio.move_on_after(_STARTED_SECONDS) as scope:
            await self._tell("started", [row])
        if scope.cancelled_caught:
            log(logging.ERROR, "hook_failed", "a hook for 'started' takes too long", hook_event="started")

    def finished(self, settled: Sequence[tuple[Claim, Outcome]]) -> None:
        """Tell that rows were settled by attempts."""
        if self._host.hooks.wants("finished"):
            self._begin("finished", [settled_row(claim, outcome) for claim, outcome in settled])

    async def reclaimed(self, task_ids: Iterable[UUID]) -> None:
        """Tell that rows were taken from a dead worker."""
        if not self._host.hooks.wants("reclaimed"):
            return
        ids = list(task_ids)
        try:
            rows = await retrying(lambda: self._host.store.get_tasks(ids))
        except OxpullError as error:
            log(logging.ERROR, "report_skipped", f"rows for 'reclaimed' can't be read: {error}", error=error)
        else:
            self._begin("reclaimed", list(rows))

    def as_settled(self, claim: Claim, outcome: Outcome) -> TaskResult:
        """The row as it will be once the outcome is written."""
        return task_result(settled_row(claim, outcome), self._reader)

    async def end(self, within: float) -> None:
        """Wait until everything is told, or the time is over."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=within)
        for telling in self._telling:
            telling.cancel()

    def _begin(self, event: Event, rows: list[TaskRow]) -> None:
        if self._untold + len(rows) > _MOST_UNTOLD:
            log(
                logging.ERROR,
                "report_skipped",
                f"{len(rows)} row(s) for {event!r} are not told of: the hooks are behind by {self._untold}",
            )
            return
        self._untold += len(rows)
        telling = asyncio.get_running_loop().create_task(self._tell(event, rows), name=f"oxpull_async {event} hooks")
        self._telling.add(telling)
        telling.add_done_callback(lambda done: self._end_telling(done, len(rows)))

    def _end_telling(self, telling: asyncio.Task[None], count: int) -> None:
        self._telling.discard(telling)
        self._untold -= count

    async def _tell(self, event: Event, rows: list[TaskRow]) -> None:
        for row in rows:
            await self._host.hooks.call(event, task_result(row, self._reader))


def settled_row(claim: Claim, outcome: Outcome) -> TaskRow:
    """The row as the outcome leaves it."""
    return task_row(claim, outcome.settlement.status, outcome)


def task_row(claim: Claim, status: TaskStatus, outcome: Outcome | None = None) -> TaskRow:
    """The row as the worker that was granted it knows it."""
    runs = outcome is None
    return TaskRow(
        id=claim.id,
        task_path=claim.task_path,
        args=claim.args,
        kwargs=claim.kwargs,
        queue_name=claim.queue_name,
        priority=claim.priority,
        takes_context=claim.takes_context,
        backend_name=claim.backend_name,
        status=status,
        run_after=claim.run_after if outcome is None or outcome.run_after is None else outcome.run_after,
        attempts=claim.attempts,
        max_attempts=claim.max_attempts,
        return_value=None if outcome is None else outcome.settlement.return_value,
        errors=claim.errors if outcome is None else outcome.errors,
        worker_ids=claim.worker_ids,
        enqueued_at=claim.enqueued_at,
        started_at=claim.started_at,
        last_attempted_at=claim.last_attempted_at,
        finished_at=None if outcome is None else outcome.finished_at,
        locked_by=None,
        locked_at=claim.last_attempted_at if runs else None,
        lease_expires_at=claim.lease_expires_at if runs else None,
        lease_epoch=claim.lease_epoch,
    )
