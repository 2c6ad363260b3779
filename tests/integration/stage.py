"""Where a task and its test wait for each other."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest


class Stage:
    """A task that calls ``hold`` says that it's there, and goes on when the test calls ``open``."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()
        self.arrivals = 0
        self.cancelled = 0

    async def hold(self) -> None:
        """Called by the task."""
        self.arrivals += 1
        self._reached.set()
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def reached(self, within: float = 10) -> None:
        """Wait until a task holds."""
        with anyio.fail_after(within):
            await self._reached.wait()
        self._reached.clear()

    def open(self) -> None:
        """Let every task go on."""
        self._opened.set()


def spied(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> list[Any]:
    """What the async method answers from now on, call by call."""
    answers: list[Any] = []
    original = getattr(owner, method)

    async def spy(*args: Any, **kwargs: Any) -> Any:
        answer = await original(*args, **kwargs)
        answers.append(answer)
        return answer

    monkeypatch.setattr(owner, method, spy)
    return answers
