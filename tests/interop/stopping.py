"""Stopping a call at each of its awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio


async def stopped_at(number: int, work: Coroutine[Any, Any, Any], by: str) -> bool:
    """Cancel the work at its await of this number; whether there was one."""
    if by == "task":
        steps = Steps(work, number)
        task = asyncio.ensure_future(steps.run())
        steps.stop = task.cancel
        await asyncio.wait([task])
        assert task.cancelled() == (steps.count >= number), task
    else:
        with anyio.CancelScope() as scope:
            steps = Steps(work, number)
            steps.stop = scope.cancel
            await steps
    return steps.count >= number


class Steps:
    """Awaits something, and calls ``stop`` when that is suspended for the n-th time."""

    stop: Callable[[], object]

    def __init__(self, work: Awaitable[Any], number: int) -> None:
        self._work, self._number = work.__await__(), number
        self.count = 0

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        resume, value = self._work.send, None
        while True:
            try:
                future = resume(value)
            except StopIteration as end:
                return end.value
            self.count += 1
            if self.count == self._number:
                self.stop()
            try:
                resume, value = self._work.send, (yield future)
            except BaseException as error:
                resume, value = self._work.throw, error
