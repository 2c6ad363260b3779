"""Waiting for something to become true, without sleeping for a guessed time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.1


@overload
async def eventually(assertion: Callable[[], Coroutine[Any, Any, T]], within: float = 10) -> T: ...
@overload
async def eventually(assertion: Callable[[], T], within: float = 10) -> T: ...
async def eventually(assertion: Callable[[], Any], within: float = 10) -> Any:
    """What `assertion` returns, once it neither raises AssertionError nor returns False.

    It's tried again and again, with growing pauses, for `within` seconds; then its last failure is raised.
    Any other exception is raised at once.
    """
    failure = AssertionError("the assertion didn't finish once")
    with anyio.move_on_after(within):
        pause = FIRST_PAUSE
        while True:
            try:
                return await _held(assertion)
            except AssertionError as error:
                failure = error
            await anyio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
    raise AssertionError(f"not within {within} s: {failure}") from failure


async def _held(assertion: Callable[[], Any]) -> Any:
    outcome = assertion()
    value = await outcome if inspect.isawaitable(outcome) else outcome
    assert value is not False, "the assertion returned False"
    return value
