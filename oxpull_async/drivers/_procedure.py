"""Procedures: operations on the database as generators that never touch a driver.

A procedure yields a ``Step`` (one statement with its values), is sent back a
``Result``, and returns its answer. Whoever runs it decides how: over an
asyncpg or asyncmy connection statement by statement, inside a SQLite thread
in one hop, or in a transaction that belongs to SQLAlchemy or Django. An error
of the driver is classified as a ``StoreError`` and thrown in at the ``yield``,
where the procedure may catch what it knows how to handle.

Source: the sans-I/O pattern (h11), applied to SQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from oxpull_async.exceptions import StoreError, WrongDatabase

if TYPE_CHECKING:
    from oxpull_async.drivers._statements import Statement

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Mapping[str, Any]


class Step(NamedTuple):
    """One statement to run. With ``many`` it runs once for each of them, and returns no rows."""

    statement: Statement
    values: Values
    many: Sequence[Values] | None = None


@dataclass(slots=True)
class Result:
    """What a statement gave: its rows, and how many rows it returned or changed."""

    rows: Sequence[Row]
    count: int


Procedure: TypeAlias = Generator[Step, Result, T]

REFUSALS = (StoreError, WrongDatabase)
"""What a statement may end with, thrown into its procedure; the second is that of a table that isn't there."""


class Undecided(StoreError):
    """Raised by a procedure to have what surrounds it rolled back; its caller knows what to answer instead."""


class Session(Protocol):
    """A connection as a procedure's runner sees it."""

    async def execute(self, step: Step) -> Result:
        """Run one statement. Raises: StoreError, chained to the driver's error."""
        ...


def changed(procedure: Procedure[T], change: Callable[[Step], Step | Result]) -> Procedure[T]:
    """The same procedure with other steps: each runs as ``change`` gives it, or isn't run where that gives a result.

    What ``change`` raises, the step has ended with.
    """
    try:
        step = next(procedure)
        while True:
            try:
                instead = change(step)
                result = instead if isinstance(instead, Result) else (yield instead)
            except REFUSALS as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        procedure.close()


async def run(procedure: Procedure[T], execute: Callable[[Step], Awaitable[Result]]) -> T:
    """Drive a procedure to its end, one awaited statement after another."""
    try:
        step = next(procedure)
        while True:
            try:
                result = await execute(step)
            except REFUSALS as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        procedure.close()


def run_sync(procedure: Procedure[T], execute: Callable[[Step], Result]) -> T:
    """Drive a procedure to its end without awaiting: the form for one hop into a thread."""
    try:
        step = next(procedure)
        while True:
            try:
                result = execute(step)
            except REFUSALS as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        procedure.close()
