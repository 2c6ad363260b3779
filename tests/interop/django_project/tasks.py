"""Tasks that a Django fleet would run: one for each thing the two sides have to agree on."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from django.tasks import TaskContext, task
from oxpull.unique import unique


@task
def plain(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Hand back what came in, so that a test sees how arguments and results are stored."""
    return {"args": list(args), "kwargs": kwargs}


@unique
@task
def unique_plain(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The same, but one at a time may be pending for each set of arguments."""
    return {"args": list(args), "kwargs": kwargs}


@task
def failing(message: str = "told to fail") -> NoReturn:
    """Fail on every attempt."""
    raise ValueError(message)


@task
def slow(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "theirs"


@task(priority=7, queue_name="mail")
def with_priority(number: int) -> int:
    """A task with a priority and a queue of its own."""
    return number


@task(takes_context=True)
def with_context(context: TaskContext[Any, Any]) -> dict[str, Any]:
    """Tell which attempt this is and which row it runs."""
    return {"attempt": context.attempt, "id": context.task_result.id}


@task
def on_complete(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A batch's callback for when all its members are settled or gone."""
    return {"callback": "on_complete", "args": list(args), "kwargs": kwargs}


@task
def on_success(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A batch's callback for when all its members succeeded."""
    return {"callback": "on_success", "args": list(args), "kwargs": kwargs}


@task(backend="listed")
def listed(number: int) -> int:
    """Unique because its backend's UNIQUE_TASKS say so."""
    return number


@task(backend="listed", queue_name="mail", max_attempts=9)
def patient(number: int) -> int:
    """With a budget of its own."""
    return number


@unique
@task(backend="plain")
def marked_in_vain(number: int) -> int:
    """Marked as unique, on a backend that doesn't look at that."""
    return number


@task(backend="immediate")
def immediate(number: int) -> int:
    """On a backend that keeps no rows."""
    return number
