"""Task rows as hooks and backoff functions are given them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.exceptions import OxpullError
from oxpull_async.ports import Claim, Outcome, TaskRow
from oxpull_async.results import TaskResult, task_result
from oxpull_async.runtime.hooks import Event
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reading import Reader
from oxpull_async.telemetry import log


class Reports:
    """Reads a row only where somebody listens. A report never fails: what can't be told is logged."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._reader = Reader(lambda: host.store, host.settle_hints)

    async def started(self, claim: Claim) -> None:
        """Tell that an attempt is about to begin."""
        if self._host.hooks.wants("started"):
            for row in await self._rows([claim.id], "started"):
                await self._call("started", row)

    async def finished(self, outcome: Outcome) -> None:
        """Tell that a row was settled by an attempt."""
        if self._host.hooks.wants("finished"):
            for row in await self._rows([outcome.id], "finished"):
                await self._call("finished", _settled(row, outcome))

    async def reclaimed(self, task_ids: Iterable[UUID]) -> None:
        """Tell that rows were taken from a dead worker."""
        if self._host.hooks.wants("reclaimed"):
            for row in await self._rows(list(task_ids), "reclaimed"):
                await self._call("reclaimed", row)

    async def as_settled(self, outcome: Outcome) -> TaskResult | None:
        """The row as it will be once the outcome is written; None if it can't be read."""
        for row in await self._rows([outcome.id], "backoff"):
            return task_result(_settled(row, outcome), self._reader)
        return None

    async def _call(self, event: Event, row: TaskRow) -> None:
        await self._host.hooks.call(event, task_result(row, self._reader))

    async def _rows(self, task_ids: list[UUID], what_for: str) -> list[TaskRow]:
        try:
            return list(await retrying(lambda: self._host.store.get_tasks(task_ids)))
        except OxpullError as error:
            log(logging.ERROR, "report_skipped", f"rows for {what_for!r} can't be read: {error}", error=error)
            return []


def _settled(row: TaskRow, outcome: Outcome) -> TaskRow:
    """The row as the outcome leaves it, even if an operator has moved it on meanwhile."""
    settlement = outcome.settlement
    return row._replace(
        status=settlement.status,
        return_value=settlement.return_value,
        errors=outcome.errors,
        finished_at=outcome.finished_at,
    )
