"""Rows of stored schedules and of the log of ticks, as another client writes and reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.core.stored_schedules import Boundary, ScheduleRow
from tests.integration.competitor import Competitor

START = datetime(2026, 1, 1, tzinfo=UTC)


def insert_schedule(
    competitor: Competitor,
    *,
    name: str = "nightly",
    task_key: str = "work",
    trigger: str = "cron",
    cron: str | None = None,
    every_seconds: int | None = None,
    phase_seconds: int = 0,
    arguments: str = "{}",
    enabled: bool = True,
    start_time: datetime = START,
    boundary_for: str | None = None,
    end_time: datetime | None = None,
    starting_deadline_seconds: int | None = None,
) -> int:
    """A stored schedule whose boundary is up to date, unless told otherwise; returns its id."""
    cron = cron if cron is not None else ("0 2 * * *" if trigger == "cron" else "")
    row = ScheduleRow(
        0, name, task_key, trigger, cron, every_seconds, phase_seconds, arguments, enabled,
        Boundary("", start_time, 0), end_time, starting_deadline_seconds,
    )  # fmt: skip
    values: dict[str, Any] = {
        "name": name, "task_key": task_key, trigger_column(competitor): trigger, "cron": cron,
        "every_seconds": every_seconds, "phase_seconds": phase_seconds, "arguments": arguments, "enabled": enabled,
        "start_time": start_time, "boundary_for": row.digest if boundary_for is None else boundary_for,
        "boundary_generation": 0, "end_time": end_time, "starting_deadline_seconds": starting_deadline_seconds,
        "created_at": START, "updated_at": START,
    }  # fmt: skip
    competitor.run(
        f"INSERT INTO django_ox_oxschedule ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        *values.values(),
    )
    return int(competitor.rows("SELECT max(id) FROM django_ox_oxschedule")[0][0])


def trigger_column(competitor: Competitor) -> str:
    """`trigger` is a reserved word of the MySQL family."""
    return "`trigger`" if competitor.scheme == "mysql" else '"trigger"'


def ticks_of(competitor: Competitor, key: str | None = None) -> list[tuple[str, datetime, UUID | None]]:
    """The log: schedule, instant and task, by instant."""
    found = competitor.rows("SELECT schedule_name, scheduled_for, task_id FROM django_ox_oxscheduletick ORDER BY 2, 1")
    return [
        (name, _instant(at), None if task_id is None else UUID(str(task_id)))
        for name, at, task_id in found
        if key in (None, name)
    ]


def _instant(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
