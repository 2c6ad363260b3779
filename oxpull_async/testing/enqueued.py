"""``assert_enqueued`` and its kin: which task rows there are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack

import anyio

from oxpull_async.app import Oxpull
from oxpull_async.core.arguments import prepare_arguments
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.exceptions import InvalidTask
from oxpull_async.ports import TaskRow
from oxpull_async.results import TaskResult
from oxpull_async.runtime.listing import every_row
from oxpull_async.tasks import AnyTask, Call, Task
from oxpull_async.testing.inlining import InlineQueue

_POLL_SECONDS: Final = 0.02
_SHOWN: Final = 20


class Conditions(TypedDict, total=False):
    """What a row must match. ``args`` and ``kwargs`` match whole, as JSON has them."""

    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    queue_name: str | None
    status: TaskStatus | None


async def all_enqueued(
    subject: Oxpull | AnyTask, *, timeout: Duration = 0, **conditions: Unpack[Conditions]
) -> list[TaskResult]:
    """The rows of a task (or all of an ``Oxpull``) that match what is given, in the order of their enqueues.

    Rows count whatever has become of them, unless ``status`` says otherwise.
    With ``timeout``, waits until there is at least one.
    """
    search = _search(subject, conditions)
    return await _found(search, seconds(timeout, "timeout"))


async def assert_enqueued(task: AnyTask, *, timeout: Duration = 0, **conditions: Unpack[Conditions]) -> TaskResult:
    """The one row that ``all_enqueued`` finds. Raises: AssertionError if there's none, or more than one."""
    search = _search(task, conditions)
    found = await _found(search, seconds(timeout, "timeout"))
    if len(found) != 1:
        there = "\n".join(_line(row) for row in found[:_SHOWN]) if found else await _others(search)
        raise AssertionError(f"expected one row of {search}, and there are {len(found)}.\n{there}")
    return found[0]


async def refute_enqueued(task: AnyTask, *, timeout: Duration = 0, **conditions: Unpack[Conditions]) -> None:
    """Nothing that ``all_enqueued`` finds, now and for ``timeout`` seconds more. Raises: AssertionError."""
    search = _search(task, conditions)
    found = await _found(search, seconds(timeout, "timeout"))
    if found:
        there = "\n".join(_line(row) for row in found[:_SHOWN])
        raise AssertionError(f"expected no row of {search}, and there are {len(found)}:\n{there}")


@dataclass(frozen=True)
class _Search:
    ox: Oxpull
    path: str | None
    args: list[Any] | None
    kwargs: dict[str, Any] | None
    queue_name: str | None
    status: TaskStatus | None

    def __str__(self) -> str:
        asked = {"args": self.args, "kwargs": self.kwargs, "queue_name": self.queue_name, "status": self.status}
        conditions = [f"{name}={value!r}" for name, value in asked.items() if value is not None]
        return " ".join([self.path or "any task", *conditions])

    def matches(self, row: TaskResult) -> bool:
        return (
            (self.args is None or row.args == self.args)
            and (self.kwargs is None or row.kwargs == self.kwargs)
            and (self.queue_name is None or row.queue_name == self.queue_name)
            and (self.status is None or row.status is self.status)
        )


async def _found(search: _Search, timeout: float) -> list[TaskResult]:
    deadline = time.monotonic() + timeout
    while True:
        found = [row for row in await _rows(search) if search.matches(row)]
        if found or time.monotonic() >= deadline:
            return found
        await anyio.sleep(_POLL_SECONDS)


async def _rows(search: _Search) -> list[TaskResult]:
    """Of the searched path, whatever else is asked for."""
    rows = [row for row in await _stored(search.ox) if search.path in (None, row.task_path)]
    rows.sort(key=lambda row: row.enqueued_at)
    return [await search.ox.get_result(row.id) for row in rows]


async def _stored(ox: Oxpull) -> list[TaskRow]:
    if isinstance(ox.substitutes.recipient, InlineQueue):
        return ox.substitutes.recipient.rows
    return [row async for row in every_row(ox.store)]


async def _others(search: _Search) -> str:
    rows = await _rows(search)
    if rows:
        return "Of this task there are:\n" + "\n".join(_line(row) for row in rows[:_SHOWN])
    paths = sorted({row.task_path for row in await _stored(search.ox)})
    return f"Of this task there is no row at all; there are rows of: {', '.join(paths) or 'no task'}."


def _line(row: TaskResult) -> str:
    return f"  {row.task_path} args={row.args} kwargs={row.kwargs} queue_name={row.queue_name!r} {row.status}"


def _oxpull_of(subject: Oxpull | AnyTask) -> Oxpull:
    if isinstance(subject, Oxpull):
        return subject
    owner = subject.owner
    if not isinstance(owner, Oxpull):
        raise InvalidTask(f"{subject!r} belongs to no Oxpull yet; call ox.include(router) first")
    return owner


def _search(subject: Oxpull | AnyTask, conditions: Conditions) -> _Search:
    args, kwargs = conditions.get("args"), conditions.get("kwargs")
    call = Call(args or (), kwargs or {})
    if isinstance(subject, Task) and subject.options.pydantic:
        call = subject.encoded(call)
    prepared = prepare_arguments("the search", *call)
    return _Search(
        ox=_oxpull_of(subject),
        path=None if isinstance(subject, Oxpull) else subject.path,
        args=None if args is None else prepared.args,
        kwargs=None if kwargs is None else prepared.kwargs,
        queue_name=conditions.get("queue_name"),
        status=conditions.get("status"),
    )
