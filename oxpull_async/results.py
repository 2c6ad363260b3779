"""What callers hold in their hands: a task row as a pydantic model, and how to wait for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, PrivateAttr

from oxpull_async.core.statuses import SETTLED, TaskStatus
from oxpull_async.exceptions import NotOpen, StoreError, TaskFailed
from oxpull_async.ports import NewTask, TaskRow

R = TypeVar("R", bound="TaskResult")


class ResultSource(Protocol):
    """Who can read a task row again: the ``Oxpull`` that a result came from."""

    async def read_row(self, task_id: UUID) -> TaskRow:
        """The row as committed. Raises: TaskResultDoesNotExist."""
        ...

    async def settled_row(self, task_id: UUID, timeout: float | None) -> TaskRow:
        """The row once it's settled. Raises: TimeoutError, TaskResultDoesNotExist."""
        ...


class TaskResult(BaseModel):
    """A task row as it was read. ``refresh`` reads it again, ``wait`` waits until it's settled.

    Instants are aware, in UTC. ``return_value`` is what JSON makes of it, and
    None until the task has succeeded. ``errors`` has one record for each
    failed attempt, oldest first: ``exception_class_path`` and ``traceback``.
    It can be copied, and pickled: what arrives elsewhere can't be read again there.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=False)

    id: UUID
    task_path: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue_name: str
    priority: int
    backend_name: str
    status: TaskStatus
    run_after: datetime | None
    attempts: int
    max_attempts: int
    return_value: Any
    errors: list[dict[str, Any]]
    worker_ids: list[str]
    enqueued_at: datetime
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None

    _source: ResultSource | None = PrivateAttr(default=None)

    @property
    def is_finished(self) -> bool:
        """Whether the task is settled: SUCCESSFUL, FAILED, LOST or DISCARDED."""
        return self.status in SETTLED

    async def refresh(self) -> TaskResult:
        """Read the row again, into this object, and return it. Raises: TaskResultDoesNotExist."""
        self._take(await self._reader().read_row(self.id))
        return self

    async def wait(self, timeout: float | None = None) -> Any:
        """Wait until the task is settled and return its value; ``timeout`` in seconds, None for ever.

        Raises: TaskFailed for FAILED, LOST and DISCARDED, TimeoutError, and
        TaskResultDoesNotExist if the row is gone.
        """
        self._take(await self._reader().settled_row(self.id, timeout))
        if self.status is not TaskStatus.SUCCESSFUL:
            raise TaskFailed(_failure(self), task_id=self.id, status=self.status, errors=self.errors)
        return self.return_value

    def _reader(self) -> ResultSource:
        if self._source is None:
            raise NotOpen(
                "this result came from no Oxpull, or was pickled, so it can't be read again; use ox.get_result(id)"
            )
        return self._source

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy that comes from the same ``Oxpull``, which isn't copied."""
        memo = {} if memo is None else memo
        memo[id(self._source)] = self._source
        return super().__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        """What is pickled: the row without the ``Oxpull``, whose connections can't go elsewhere."""
        return {**super().__getstate__(), "__pydantic_private__": {"_source": None}}

    def _take(self, row: TaskRow) -> None:
        for name, value in _fields(row).items():
            setattr(self, name, value)


class EnqueueResult(TaskResult):
    """The task that an enqueue led to. ``created`` is False where a pending one was there already."""

    created: bool


def task_result(row: TaskRow, source: ResultSource) -> TaskResult:
    """A result over a stored row."""
    return _made(TaskResult, _fields(row), source)


def duplicate_result(row: TaskRow, source: ResultSource) -> EnqueueResult:
    """The result of an enqueue that found its task pending: the stored row, whatever was asked for."""
    return _made(EnqueueResult, {"created": False, **_fields(row)}, source)


def created_result(task: NewTask, source: ResultSource) -> EnqueueResult:
    """The result of a new task row, built from what was written."""
    fields = {
        "created": True,
        "id": task.id,
        "task_path": task.task_path,
        "args": _list(task.args),
        "kwargs": {} if task.kwargs == "{}" else json.loads(task.kwargs),
        "queue_name": task.queue_name,
        "priority": task.priority,
        "backend_name": task.backend_name,
        "status": TaskStatus.READY,
        "run_after": task.run_after,
        "attempts": 0,
        "max_attempts": task.max_attempts,
        "return_value": None,
        "errors": [],
        "worker_ids": [],
        "enqueued_at": task.enqueued_at,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
    }
    return _made(EnqueueResult, fields, source)


def _made(kind: type[R], fields: dict[str, Any], source: ResultSource) -> R:
    """As ``model_construct`` with every field given, without its search for aliases and defaults, which costs
    a bulk enqueue a quarter of its time.
    """
    result = kind.__new__(kind)
    object.__setattr__(result, "__dict__", fields)
    object.__setattr__(result, "__pydantic_fields_set__", set(fields))
    object.__setattr__(result, "__pydantic_extra__", None)
    object.__setattr__(result, "__pydantic_private__", {"_source": source})
    return result


def _fields(row: TaskRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "task_path": row.task_path,
        "args": _list(row.args),
        "kwargs": {} if row.kwargs == "{}" else json.loads(row.kwargs),
        "queue_name": row.queue_name,
        "priority": row.priority,
        "backend_name": row.backend_name,
        "status": _status(row),
        "run_after": _utc(row.run_after),
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "return_value": None if row.return_value is None else json.loads(row.return_value),
        "errors": _list(row.errors),
        "worker_ids": _list(row.worker_ids),
        "enqueued_at": _utc(row.enqueued_at),
        "started_at": _utc(row.started_at),
        "last_attempted_at": _utc(row.last_attempted_at),
        "finished_at": _utc(row.finished_at),
    }


def _list(text: str) -> Any:
    return [] if text == "[]" else json.loads(text)


def _utc(instant: datetime | None) -> datetime | None:
    """A caller's connection may have read it in another time zone."""
    return instant if instant is None or instant.tzinfo is UTC else instant.astimezone(UTC)


_STATUSES = {str(status): status for status in TaskStatus}


def _status(row: TaskRow) -> TaskStatus:
    try:
        return _STATUSES[row.status]
    except KeyError:
        raise StoreError(
            f"task row {row.id} has the status {row.status!r}, which this version of oxpull_async doesn't know"
        ) from None


def _failure(result: TaskResult) -> str:
    words = f"task {result.task_path} ({result.id}) ended as {result.status} after {result.attempts} attempt(s)"
    if not result.errors:
        return words
    last = result.errors[-1]
    lines = str(last.get("traceback", "")).strip().splitlines()
    return f"{words}: {lines[-1] if lines else last.get('exception_class_path')}"
