"""Callbacks as a batch's row keeps them: a path and arguments, checked when the batch is created."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from oxpull_async.core.arguments import prepare_arguments
from oxpull_async.core.names import check_task_path
from oxpull_async.enqueueing.foreign import AnyEnqueueable, as_task
from oxpull_async.exceptions import InvalidArguments, InvalidTask
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call, Task

Callback: TypeAlias = "AnyEnqueueable | str | None"


@dataclass(frozen=True, slots=True)
class StoredCallback:
    """The three columns of one callback."""

    path: str = ""
    args: str = "[]"
    kwargs: str = "{}"


def stored_callback(
    which: str,
    callback: Callback,
    args: object,
    kwargs: object,
    extra: Mapping[str, Any],
    *,
    tasks: Mapping[str, AnyTask],
    settings: Settings,
) -> StoredCallback:
    """What is stored of a callback. Without one, its arguments are dropped.

    Raises: InvalidTask for a task that can't be one, InvalidArguments.
    """
    if callback is None:
        return StoredCallback()
    path, task = _resolved(which, callback, tasks)
    if path in settings.unique_tasks or (task is not None and task.options.unique is not None):
        raise InvalidTask(
            f"{which}: {path} is unique. Two batches that end alike would share one task of it, and one callback "
            "would never run; declare a plain task"
        )
    positional, named = _checked(which, args, kwargs)
    if taken := sorted(named.keys() & extra.keys()):
        raise InvalidArguments(f"{which}: pass_batch gives {', '.join(taken)}, which {which}_kwargs has too")
    named = {**named, **extra}
    if task is not None:
        _check_fit(which, task, Call(positional, named), extra)
    prepared = prepare_arguments(path, positional, named)
    return StoredCallback(path, prepared.args_json, prepared.kwargs_json)


def _check_fit(which: str, task: AnyTask, call: Call, extra: Mapping[str, Any]) -> None:
    try:
        task.bind_arguments(call)
    except InvalidArguments as error:
        given = f" (pass_batch gives {', '.join(extra)}, by name)" if extra else ""
        raise InvalidArguments(f"{which}: {error}{given}") from error


def _resolved(which: str, callback: object, tasks: Mapping[str, AnyTask]) -> tuple[str, AnyTask | None]:
    """The path, and the task where this process knows it."""
    if isinstance(callback, str):
        path = check_task_path(callback)
        return path, tasks.get(path)
    task = as_task(callback)  # type: ignore[arg-type]
    if isinstance(callback, Task):
        _refuse_overrides(which, task, tasks.get(task.path))
    elif _imported(task.path) != callback:
        raise InvalidTask(_overridden(which, task.path, "what using() gave it"))
    return task.path, task


def _refuse_overrides(which: str, task: AnyTask, declared: AnyTask | None) -> None:
    """A reference is routed by the code base that has the task, so its options don't matter here."""
    if declared is None:
        if task.function is not None:
            raise InvalidTask(
                f"{which}: {task.path} is no task of this Oxpull, so it would never be enqueued here; declare it with "
                "@ox.task (or include its router), or give ox.reference(path) for one of another code base"
            )
        return
    names = (field.name for field in fields(task.options))
    changed = sorted(name for name in names if getattr(task.options, name) != getattr(declared.options, name))
    if changed:
        raise InvalidTask(_overridden(which, task.path, ", ".join(changed)))


def _overridden(which: str, path: str, what: str) -> str:
    return f"{which}: only the path of {path} is stored, so {what} would be lost; say it where the task is declared"


def _imported(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _checked(which: str, args: object, kwargs: object) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if args is not None and not isinstance(args, list | tuple):
        raise InvalidArguments(f"{which}_args must be a list or a tuple, not {args!r}")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise InvalidArguments(f"{which}_kwargs must be a dict with str keys, not {kwargs!r}")
    return args or (), kwargs or {}
