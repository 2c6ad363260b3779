"""Work that is done while the database works: a statement is on its way before its caller's result is made."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")
W = TypeVar("W")


@types.coroutine
def meanwhile(awaited: Coroutine[Any, Any, T], work: Callable[[], W]) -> Generator[Any, Any, tuple[T, W]]:
    """What is awaited, and what ``work`` gives, which runs as soon as the other waits for something.

    ``work`` must neither fail nor wait. Awaited within a task it changes nothing else: errors and cancels reach what
    is awaited at the point where it waits.
    """
    try:
        waits_for = awaited.send(None)
    except StopIteration as ended:
        return ended.value, work()
    done = work()
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            awaited.close()
            raise
        except BaseException as error:
            try:
                waits_for = awaited.throw(error)
            except StopIteration as ended:
                return ended.value, done
        else:
            return (yield from awaited.__await__()), done
