"""Tasks of ``django.tasks``, taken as they are: what is theirs goes into the row, and into the key.

Known by their shape, so nothing of Django is imported here: whoever has such
a task in hand has imported all that it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from oxpull_async.core.names import check_task_path
from oxpull_async.exceptions import InvalidTask
from oxpull_async.options import TaskOptions, Unique, checked
from oxpull_async.tasks import AnyTask, Home, Task

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_NOWHERE = Home()


class ForeignTask(Protocol[P, R_co]):
    """A task as ``django.tasks.task`` makes it: a frozen dataclass."""

    def __hash__(self) -> int: ...

    @property
    def func(self) -> Callable[P, R_co]: ...

    @property
    def module_path(self) -> str: ...

    @property
    def backend(self) -> str: ...

    @property
    def queue_name(self) -> str: ...

    @property
    def priority(self) -> int: ...

    @property
    def run_after(self) -> datetime | None: ...

    @property
    def takes_context(self) -> bool: ...


Enqueueable: TypeAlias = "Task[P, Any] | ForeignTask[P, Any]"
AnyEnqueueable: TypeAlias = "Task[Any, Any] | ForeignTask[Any, Any]"


def as_task(task: AnyEnqueueable) -> AnyTask:
    """The task itself, or what stands for it here. Raises: InvalidTask for what is no task."""
    return task if isinstance(task, Task) else _adopted(task)


def own_task(task: Task[P, R_co]) -> Task[P, R_co]:
    """The task itself, which knows its Oxpull. Raises: InvalidTask for a task that belongs to none, and for no task."""
    if isinstance(task, Task):
        return task
    other = as_task(task)
    raise InvalidTask(
        f"{other.path} is a task of django.tasks and belongs to no Oxpull: use ox.enqueue({other.path}, …)"
    )


def _adopted(task: ForeignTask[Any, Any]) -> AnyTask:
    """Raises: InvalidTask also for a task whose backend keeps no rows in these tables."""
    get_backend = getattr(task, "get_backend", None)
    if not callable(get_backend) or not isinstance(getattr(task, "module_path", None), str):
        raise InvalidTask(
            f"{task!r} is no task: decorate the function with @ox.task, or make ox.reference(path) of a task that is "
            "declared elsewhere"
        )
    backend = get_backend()
    attempts = getattr(backend, "max_attempts", None)
    if attempts is None:
        raise InvalidTask(
            f"{task.module_path} belongs to the backend {task.backend!r}, a {type(backend).__qualname__}, whose tasks "
            "are no rows of a database. Give TASKS a backend of django-ox, or use ox.reference(path)"
        )
    return _converted(task, attempts, _is_unique(task.module_path, backend))


def _is_unique(path: str, backend: object) -> bool:
    """Marked by the reference's decorator, or listed in its backend's UNIQUE_TASKS.

    Only its own backend looks at either, so a plain one has none.
    """
    listed = getattr(backend, "unique_task_paths", None)
    if listed is None:
        return False
    registry = sys.modules.get("oxpull.unique")  # never imported: nothing is marked
    return path in listed or (registry is not None and bool(registry.is_registered(path)))


@lru_cache(maxsize=1024)
def _converted(task: ForeignTask[Any, Any], attempts: int, is_unique: bool) -> AnyTask:
    """Kept for the next call, for the signature is costly to read."""
    own_attempts = getattr(task, "max_attempts", None)
    options = TaskOptions(
        queue_name=task.queue_name,
        priority=task.priority,
        run_after=task.run_after,
        max_attempts=attempts if own_attempts is None else own_attempts,
        takes_context=task.takes_context,
        unique=Unique() if is_unique else None,
        backend_name=task.backend,
    )
    return Task(task.func, check_task_path(task.module_path), checked(options), _NOWHERE)
