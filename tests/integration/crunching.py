"""Tasks that run in processes of their own, which find them here by their paths."""

from __future__ import annotations

import os
import time
from pathlib import Path

from oxpull_async import Discard, Snooze, TaskRouter

router = TaskRouter()


class Picky(Exception):
    """Can't be pickled: it needs more than its message."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


@router.task(executor="process")
def where() -> int:
    return os.getpid()


@router.task(executor="process", max_attempts=1)
def unstorable() -> set[int]:
    return {1}


@router.task(executor="process", max_attempts=1)
def failing() -> None:
    raise ValueError("no such order")


@router.task(executor="process", max_attempts=1)
def picky() -> None:
    raise Picky("not this one", code=3)


@router.task(executor="process")
def give_up() -> None:
    raise Discard("pointless")


@router.task(executor="process")
def later() -> None:
    raise Snooze(after=600)


@router.task(executor="process", max_attempts=1)
def die() -> None:
    os._exit(3)


@router.task(executor="process", timeout=2, max_attempts=1)
def hang(trace: str) -> None:
    """Writes its process's id, and then never ends."""
    Path(trace).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


@router.task(executor="process")
def hold(trace: str) -> None:
    """The same without a time limit."""
    Path(trace).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)
