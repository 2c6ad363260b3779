"""Where a task's function may run, and which functions may run there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from oxpull_async.exceptions import InvalidTask


def check_executor(value: object) -> Literal["process"] | None:
    """The option as it's kept. Raises: InvalidTask."""
    if value is None or value == "process":
        return "process" if value else None
    raise InvalidTask(f'executor takes "process", or nothing, not {value!r}')


def check_process_function(function: Callable[..., Any], path: str, *, takes_context: bool, is_encoded: bool) -> None:
    """In a process it's found by its path, gets nothing but its arguments, and has no event loop.

    Raises: InvalidTask.
    """
    if inspect.iscoroutinefunction(function):
        raise InvalidTask(f'{path}: executor="process" is for plain functions, not for coroutine functions')
    if takes_context:
        raise InvalidTask(f'{path}: a task with executor="process" can\'t take a context')
    if is_encoded:
        raise InvalidTask(f'{path}: executor="process" and pydantic=True don\'t go together')
    if "<locals>" in path:
        raise InvalidTask(f'{path}: a task with executor="process" must be declared at the top of its module')
