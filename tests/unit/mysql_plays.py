"""Procedures of the MySQL family, run against a script instead of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from oxpull_async._ids import new_id
from oxpull_async.drivers._procedure import Procedure, Result, Step
from oxpull_async.exceptions import LockNotAvailable, StoreError, UniqueViolation
from oxpull_async.ports import NewUnique
from tests.conformance.rows import now

T = TypeVar("T")

Answer = Result | StoreError | list[Any] | int


def played(procedure: Procedure[T], script: Sequence[tuple[str, Answer]]) -> tuple[T, list[Step]]:
    """Run it to its end against the script: the statements it must yield, by name, and their answers."""
    steps: list[Step] = []
    answers = list(script)
    step = next(procedure)
    while True:
        steps.append(step)
        assert answers, f"not in the script: {step.statement.name}"
        name, answer = answers.pop(0)
        assert step.statement.name == name
        try:
            step = procedure.throw(answer) if isinstance(answer, StoreError) else procedure.send(_result(answer))
        except StopIteration as stop:
            assert not answers, f"not yielded: {answers}"
            return stop.value, steps


def _result(answer: Result | list[Any] | int) -> Result:
    if isinstance(answer, Result):
        return answer
    return Result((), answer) if isinstance(answer, int) else Result(answer, len(answer))


def stored(task_id: UUID, status: str = "READY") -> tuple[Any, ...]:
    """A task row's columns as the server gives them."""
    at = now().replace(tzinfo=None)
    return (
        task_id.hex, "a.b", "[]", "{}", "default", 0, 0, "default", status, None, 0, 3, None, "[]", "[]", at,
        None, None, None, None, None, None, 0,
    )  # fmt: skip


def holder(candidate: NewUnique, task_id: UUID | None = None, status: str = "READY") -> tuple[Any, ...]:
    """What the lock of a key says."""
    held = task_id or new_id()
    return (candidate.key, held.hex, *stored(held, status))


def busy() -> LockNotAvailable:
    return LockNotAvailable("Lock wait timeout exceeded", code=1205)


def exists() -> UniqueViolation:
    return UniqueViolation("Duplicate entry for key 'PRIMARY'", code=1062)
