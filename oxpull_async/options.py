"""What is said of a task at its declaration: its options, checked once, and what makes it unique."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from oxpull_async.core.exclusive_options import Exclusive as Exclusive
from oxpull_async.core.executors import check_executor
from oxpull_async.core.names import (
    check_backend_name,
    check_backoff,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_timeout,
    check_wait,
    suggestion,
)
from oxpull_async.core.unique_options import Unique as Unique
from oxpull_async.exceptions import InvalidTask

BackoffChoice: TypeAlias = "Callable[..., float | timedelta | None]"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task's row and its runs get. ``None`` stands for the settings' default."""

    queue_name: str = "default"
    priority: int = 0
    run_after: datetime | timedelta | float | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    backoff: float | Callable[..., Any] | None = None
    takes_context: bool = False
    unique: Unique | None = None
    exclusive: Exclusive | None = None
    wait: float | None = None
    """How long a unique enqueue waits for a competitor's open transaction, in seconds.

    On a bound connection of SQLite its own busy time-out decides.
    """
    backend_name: str | None = None
    executor: Literal["process"] | None = None
    """"process": the function, a plain one, runs in a process of its own, and can be killed."""
    pydantic: bool = False
    """Arguments and return values go through pydantic, by their annotations."""


def make_options(given: Mapping[str, Any]) -> TaskOptions:
    """Checked options from keywords. Raises: InvalidTask naming the option."""
    unknown = given.keys() - TaskOptions.__dataclass_fields__.keys()
    if unknown:
        known = TaskOptions.__dataclass_fields__
        complaints = [f"there is no task option {name!r}{suggestion(name, known)}" for name in sorted(unknown)]
        raise InvalidTask(f"{'; '.join(complaints)} (the options are {', '.join(sorted(known))})")
    options = {name: value for name, value in given.items() if value is not None}
    unique, exclusive = options.pop("unique", None), options.pop("exclusive", None)
    return checked(TaskOptions(**options, unique=_unique(unique), exclusive=_exclusive(exclusive)))


def checked(options: TaskOptions) -> TaskOptions:
    """The options with every value checked and normalised."""
    return replace(
        options,
        queue_name=check_queue_name(options.queue_name),
        priority=check_priority(options.priority),
        max_attempts=None if options.max_attempts is None else check_max_attempts(options.max_attempts),
        timeout=None if options.timeout is None else check_timeout(options.timeout),
        wait=None if options.wait is None else check_wait(options.wait),
        executor=check_executor(options.executor),
        backoff=check_backoff(options.backoff),
        backend_name=None if options.backend_name is None else check_backend_name(options.backend_name),
    )


def _unique(value: object) -> Unique | None:
    if value is None or value is False:
        return None
    if value is True:
        return Unique()
    if isinstance(value, Unique):
        return value
    raise InvalidTask(f"unique takes True, False or Unique(…), not {value!r}")


def _exclusive(value: object) -> Exclusive | None:
    if value is None or value is False:
        return None
    if value is True:
        return Exclusive()
    if isinstance(value, Exclusive):
        return value
    raise InvalidTask(f"exclusive takes True, False or Exclusive(…), not {value!r}")
