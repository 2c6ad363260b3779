"""``ox.check()``: what is set up in a way that will disappoint, told before it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import ClassVar, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from oxpull_async.clock import Clock
from oxpull_async.core.names import suggestion
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.stored_schedules import UnreadableRow
from oxpull_async.exceptions import StoreError, WrongDatabase
from oxpull_async.ports import Store
from oxpull_async.ports_schedules import ScheduleStore
from oxpull_async.runtime.reconciler import ROLE_PREFIX
from oxpull_async.schedules import Schedule
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask

_LATELY: Final = timedelta(minutes=2)
"""A reconciler takes its role every few seconds."""
_WAITING: Final = ("SEALED", "OPEN")


class Finding(BaseModel):
    """Something that ``check`` has found. ``name`` is a stable word for programs, ``hint`` says what to do."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    level: Literal["error", "warning", "info"]
    name: str
    message: str
    hint: str


class Checked(Protocol):
    """What is looked at: an ``Oxpull``."""

    @property
    def settings(self) -> Settings:
        """What is set."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def store(self) -> Store:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that can run here, by path."""
        ...

    @property
    def declared_schedules(self) -> Mapping[str, Schedule]:
        """The schedules of the code, by name."""
        ...

    @property
    def schedulable_tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that stored schedules may name, by key."""
        ...


class Checkup:
    """One look at an ``Oxpull`` and its database; it writes nothing."""

    def __init__(self, ox: Checked, schedules: ScheduleStore) -> None:
        self._ox = ox
        self._schedules = schedules

    async def findings(self) -> list[Finding]:
        """Everything found, the worst first. Raises: NotOpen."""
        found = [*scheduled_uniques(self._ox), *self._paths()]
        broken = await self._database()
        if broken is not None:
            found.append(broken)
        else:
            for look in (self._schema, self._rows, self._stored_schedules, self._reconciler):
                found += [finding async for finding in look()]
        return sorted(found, key=lambda finding: ("error", "warning", "info").index(finding.level))

    def _paths(self) -> list[Finding]:
        tasks = self._ox.tasks
        return [
            Finding(
                level="info",
                name="unknown_unique_path",
                message=f"unique_tasks names {path!r}, and no task of that path is declared here"
                f"{suggestion(path, tasks)}",
                hint="That's right for a task of another code base. A misspelt path makes nothing unique.",
            )
            for path in sorted(self._ox.settings.unique_tasks - tasks.keys())
        ]

    async def _database(self) -> Finding | None:
        try:
            await self._ox.store.probe()
        except WrongDatabase as error:
            return Finding(level="error", name="tables_missing", message=str(error), hint="Run `oxpull-async migrate`.")
        except StoreError as error:
            return Finding(
                level="error", name="unreachable", message=str(error), hint="See that the database is up, and its URL."
            )
        return None

    async def _schema(self) -> AsyncIterator[Finding]:
        try:
            missing = await self._ox.store.missing_steps()
        except WrongDatabase:  # made by Django or a migration tool alone: there is no ledger
            return
        if missing:
            yield Finding(
                level="warning",
                name="schema_behind",
                message=f"steps of the schema aren't listed as applied: {', '.join(missing)}",
                hint="Run `oxpull-async migrate`. If another tool makes the tables, see that it has made these steps.",
            )

    async def _rows(self) -> AsyncIterator[Finding]:
        now, tasks = self._ox.clock.now(), self._ox.tasks
        counts = await self._ox.store.count(now=now, since=now, limit=1)
        queues = self._ox.settings.queues
        for found in counts.pending if tasks else ():
            is_ours = queues is None or found.queue_name in queues
            if is_ours and found.due and found.status == TaskStatus.READY and found.task_path not in tasks:
                yield Finding(
                    level="warning",
                    name="unknown_path",
                    message=f"{found.due} due row(s) of {found.task_path} in the queue {found.queue_name!r}, and no "
                    f"task of that path is declared here{suggestion(found.task_path, tasks)}",
                    hint="A worker of this app leaves them alone. Somebody else must run them, another app or a Django "
                    "fleet on the same tables; a task that was renamed has to keep its old path until they're gone.",
                )

    async def _stored_schedules(self) -> AsyncIterator[Finding]:
        known = self._ox.schedulable_tasks
        for row in await self._schedules.stored_schedules():
            if isinstance(row, UnreadableRow):
                yield Finding(
                    level="warning",
                    name="unreadable_schedule",
                    message=f"the stored schedule {row.id} can't be read: {row.why}",
                    hint="It doesn't fire. Mend the row, or delete it.",
                )
            elif known and row.enabled and row.task_key not in known:
                yield Finding(
                    level="info",
                    name="unknown_schedulable",
                    message=f"the stored schedule {row.name!r} is of {row.task_key!r}, which isn't declared here"
                    f"{suggestion(row.task_key, known)}",
                    hint="It's fired by those who know that task.",
                )

    async def _reconciler(self) -> AsyncIterator[Finding]:
        batches = self._ox.store.batches
        waiting = [status for status in _WAITING if await batches.newest(status, limit=1)]
        if not waiting or self._ox.settings.reconciler == "external":
            return
        last = await batches.last_led(ROLE_PREFIX)
        if last is None or last < self._ox.clock.now() - _LATELY:
            when = "none has run yet" if last is None else f"the last was seen at {last:%Y-%m-%d %H:%M:%S} UTC"
            yield Finding(
                level="error",
                name="no_reconciler",
                message=f"there are batches ({', '.join(waiting)}) and no reconciler: {when}",
                hint="They aren't completed without one. Have a process run `ox.lifespan`, `ox.running()` or a worker. "
                'Where a Django fleet does it, say reconciler="external".',
            )


def scheduled_uniques(ox: Checked) -> list[Finding]:
    """Schedules of the code whose task is unique; asks no database."""
    return [
        Finding(
            level="warning",
            name="scheduled_unique",
            message=f"the schedule {name!r} fires {schedule.task.path}, which is unique",
            hint="A tick that finds the task still pending enqueues nothing. If each tick has to run, give the "
            "schedules different arguments or take uniqueness from the task.",
        )
        for name, schedule in ox.declared_schedules.items()
        if schedule.task.options.unique is not None or schedule.task.path in ox.settings.unique_tasks
    ]
