"""Plain task rows: insert and read."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import id_array, task_row, task_values
from oxpull_async.ports import NewTask, TaskRow

_SQL = load_statements(__package__, "tasks.sql")
_INSERT_TASK = _SQL["insert_task"]
_GET_TASK = _SQL["get_task"]
_GET_TASKS = _SQL["get_tasks"]
_LIST_TASKS = _SQL["list_tasks"]


def insert(tasks: Sequence[NewTask]) -> Procedure[None]:
    """One statement, run again for each row."""
    if len(tasks) == 1:
        yield _INSERT_TASK(**task_values(tasks[0]))
    elif tasks:
        yield _INSERT_TASK.many([task_values(task) for task in tasks])


def get(task_id: UUID) -> Procedure[TaskRow | None]:
    result = yield _GET_TASK(id=task_id.hex)
    return task_row(result.rows[0]) if result.rows else None


def get_many(task_ids: Sequence[UUID]) -> Procedure[list[TaskRow]]:
    result = yield _GET_TASKS(ids=id_array(task_ids))
    return [task_row(row) for row in result.rows]


def list_page(after: UUID, limit: int) -> Procedure[list[TaskRow]]:
    result = yield _LIST_TASKS(after_id=after.hex, limit=limit)
    return [task_row(row) for row in result.rows]
