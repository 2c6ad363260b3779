"""Runs a cleanup or a COMMIT to its end although the caller is cancelled, within a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T], *, within: float) -> T:
    """Await ``work`` for at most ``within`` seconds, whatever happens to the caller meanwhile.

    A cancel that arrives is raised after the work has ended. Holds against
    anyio's cancel scopes, which cancel every await anew, and against a plain
    ``task.cancel()``, which their shield doesn't stop.
    Raises: TimeoutError when the bound is over; the work is cancelled then.
    """
    task = asyncio.ensure_future(work)
    deadline = time.monotonic() + within
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
    if not task.done():
        task.cancel()
        if cancelled is None:
            raise TimeoutError(f"not done within {within:g} s")
    if cancelled is not None:
        _retrieve(task)
        raise cancelled
    return task.result()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Look at the outcome that nobody will await, so that asyncio doesn't report it as forgotten."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
