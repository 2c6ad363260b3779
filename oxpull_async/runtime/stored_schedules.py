"""The schedules that are kept as rows, as this process last read them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

from oxpull_async.core.schedules import Timing
from oxpull_async.core.stored_schedules import REREAD_SECONDS, Boundary, ScheduleRow, UnreadableRow
from oxpull_async.exceptions import InvalidArguments, InvalidSchedule, OxpullError
from oxpull_async.ports_schedules import ScheduleStore
from oxpull_async.tasks import AnyTask
from oxpull_async.telemetry import log

_UNUSABLE: Final = (InvalidSchedule, InvalidArguments, ValueError)
_REREAD: Final = timedelta(seconds=REREAD_SECONDS)


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A row that this process can run."""

    row: ScheduleRow
    task: AnyTask
    kwargs: Mapping[str, Any]
    timing: Timing


class StoredSchedules:
    """Reads the rows again when somebody tells that they have changed, and at least every minute.

    A row that can't be used is left out, and told once.
    """

    def __init__(self, store: Callable[[], ScheduleStore], tasks: Mapping[str, AnyTask], zone: tzinfo) -> None:
        self._store = store
        self._tasks = tasks
        self._zone = zone
        self._usable: list[StoredSchedule] = []
        self._changed_at: datetime | None = None
        self._read_at: datetime | None = None
        self._stale: dict[int, Boundary] = {}
        self._told: dict[int, str] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether there is a task that rows may name."""
        return bool(self._tasks)

    async def current(self, now: datetime) -> list[StoredSchedule]:
        """The usable rows. There are none, and nothing is read, while no task is schedulable."""
        if not self._tasks:
            return []
        await self._move_boundaries(now)
        changed_at = await self._store().schedules_changed_at()
        if changed_at != self._changed_at or self._is_old(now):
            await self._read()
            if self._stale:  # what moved meanwhile would match its boundary again: move it before anybody looks
                await self._move_boundaries(now)
                await self._read()
            self._changed_at, self._read_at = changed_at, now
        return self._usable

    def wanted(self, row: ScheduleRow | None, schedule_id: int) -> StoredSchedule | None:
        """The schedule as its row is now, under the row's lock; None where it isn't to run.

        A row in a state that its boundary doesn't belong to is noted, and has
        that moved before the next pass.
        """
        if row is None or not row.enabled:
            self._leave_out(schedule_id)
        if row is None or row.is_stale or not row.enabled:
            self._note_stale(row)
            return None
        try:
            return self._parsed(row)
        except _UNUSABLE as error:
            self._tell(schedule_id, str(error))
            self._leave_out(schedule_id)
            return None

    def _parsed(self, row: ScheduleRow) -> StoredSchedule:
        task = self._tasks.get(row.task_key)
        if task is None:
            raise InvalidSchedule(f"no task here is schedulable as {row.task_key!r}")
        arguments = json.loads(row.arguments)
        if not isinstance(arguments, dict):
            raise InvalidSchedule("its arguments are no object")
        task.check_arguments((), arguments)
        return StoredSchedule(row, task, arguments, row.timing(self._zone))

    def _note_stale(self, row: ScheduleRow | None) -> None:
        if row is not None and row.is_stale:
            self._stale[row.id] = row.boundary

    def _leave_out(self, schedule_id: int) -> None:
        """Until the rows are read again."""
        self._usable = [schedule for schedule in self._usable if schedule.row.id != schedule_id]

    def _is_old(self, now: datetime) -> bool:
        return self._read_at is None or not timedelta(0) <= now - self._read_at < _REREAD

    async def _read(self) -> None:
        rows = await self._store().stored_schedules()
        self._usable = []
        for row in rows:
            if isinstance(row, UnreadableRow):
                self._tell(row.id, row.why)
                continue
            self._note_stale(row)
            if row.enabled:
                self._use(row)
        self._told = {id_: why for id_, why in self._told.items() if id_ in {row.id for row in rows}}

    def _use(self, row: ScheduleRow) -> None:
        try:
            self._usable.append(self._parsed(row))
        except _UNUSABLE as error:
            self._tell(row.id, str(error))
        else:
            self._told.pop(row.id, None)

    async def _move_boundaries(self, now: datetime) -> None:
        for schedule_id, observed in list(self._stale.items()):
            try:
                moved = await self._store().move_boundary(schedule_id, observed, now=now)
            except OxpullError as error:
                self._tell(schedule_id, f"its start can't be moved: {error}")
                continue
            del self._stale[schedule_id]
            if moved:
                log(
                    logging.WARNING,
                    "schedule_retimed",
                    f"the stored schedule {schedule_id} was changed without its start: it starts now",
                    schedule=schedule_id,
                )

    def _tell(self, schedule_id: int, why: str) -> None:
        if self._told.get(schedule_id) != why:
            self._told[schedule_id] = why
            log(
                logging.WARNING,
                "stored_schedule_skipped",
                f"the stored schedule {schedule_id} doesn't run here: {why}",
                schedule=schedule_id,
            )
