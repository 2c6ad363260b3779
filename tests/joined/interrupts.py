"""Stopping a call where it hangs in the air: at each of its awaits, and at each of its statements."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import anyio
import pytest

from oxpull_async.drivers import _savepoints
from oxpull_async.drivers._joined.sqlalchemy_session import SqlalchemySession
from tests.joined.handles import Caller

T = TypeVar("T")
Stop = Literal["task", "scope"]
"""A plain `task.cancel()`, once; or a cancel scope of anyio's, which cancels every further await too."""


@dataclass
class Stopped:
    """How an interrupted call went."""

    reached: bool
    """The await at which it was to be stopped came."""
    cancelled: bool
    """It ended by that cancel."""
    result: object
    may_finish: bool
    """A scope's cancel that comes during its last, shielded statement is for whatever follows the call."""

    @property
    def ended_rightly(self) -> bool:
        return self.cancelled or (self.may_finish and not isinstance(self.result, BaseException))


async def stopped_at(number: int, work: Coroutine[Any, Any, object], stop: Stop) -> Stopped:
    """Run `work`, and cancel it at its await of this number, counted from 1."""
    return await (_by_task(number, work) if stop == "task" else _by_scope(number, work))


async def _by_task(number: int, work: Coroutine[Any, Any, object]) -> Stopped:
    def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    interrupted = _Interrupted(work, number, cancel)

    async def run() -> object:
        return await interrupted

    (result,) = await asyncio.gather(asyncio.ensure_future(run()), return_exceptions=True)
    return Stopped(interrupted.count >= number, isinstance(result, asyncio.CancelledError), result, False)


async def _by_scope(number: int, work: Coroutine[Any, Any, object]) -> Stopped:
    result: object = None
    with anyio.CancelScope() as scope:
        interrupted = _Interrupted(work, number, scope.cancel)
        try:
            result = await interrupted
        except Exception as error:
            result = error
    return Stopped(interrupted.count >= number, scope.cancelled_caught, result, True)


class _Interrupted(Awaitable[T]):
    """Awaits something, and calls `stop` when that is suspended for the n-th time."""

    def __init__(self, awaited: Awaitable[T], number: int, stop: Callable[[], None]) -> None:
        self._awaited = awaited
        self._number = number
        self._stop = stop
        self.count = 0

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._awaited.__await__()
        resume: Callable[[Any], Any] = inner.send
        value: Any = None
        while True:
            try:
                future = resume(value)
            except StopIteration as end:
                answer: T = end.value
                return answer
            self.count += 1
            if self.count == self._number:
                self._stop()
            try:
                value = yield future
            except BaseException as error:
                resume, value = inner.throw, error
            else:
                resume = inner.send


def statement_runners() -> list[Any]:
    """The classes of sessions that run procedures statement by statement."""
    runners: list[Any] = [SqlalchemySession]
    for module, name in (("postgres", "AsyncpgSession"), ("mysql", "AsyncmySession")):
        runners.append(getattr(importlib.import_module(f"oxpull_async.drivers.{module}.session"), name))
    return runners


class Statements:
    """Counts the statements that callers' sessions run, and does something before the n-th of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.before: Callable[[int], Awaitable[None]] | None = None
        for runner in statement_runners():
            monkeypatch.setattr(runner, "execute", self._counted(runner.execute))

    def _counted(self, execute: Any) -> Any:
        async def counted(session: Any, step: Any) -> Any:
            self.names.append(step.statement.name)
            if self.before is not None:
                await self.before(len(self.names))
            return await execute(session, step)

        return counted


class Savepoints:
    """Which of the savepoints that were opened meanwhile are still there."""

    def __init__(self) -> None:
        self._first = next(_savepoints._numbers)

    async def still_open(self, caller: Caller) -> list[str]:
        """Leaves the transaction as it is. Asks by releasing them, inside a savepoint of the caller's own."""
        # SQLAlchemy has the same few again and again.
        numbers = {1, 2, 3, *range(self._first + 1, next(_savepoints._numbers))}
        found = []
        for name in (f"oxpull_{number}" for number in numbers):
            await caller.run("SAVEPOINT probe")
            try:
                await caller.run(f"ROLLBACK TO SAVEPOINT {name}")
            except Exception:
                await caller.run("ROLLBACK TO SAVEPOINT probe")
                await caller.run("RELEASE SAVEPOINT probe")
            else:
                found.append(name)
        return found
