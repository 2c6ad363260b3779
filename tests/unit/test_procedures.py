"""A procedure with other steps than its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oxpull_async.drivers._procedure import Procedure, Result, Step, changed
from oxpull_async.drivers._statements import Statement
from oxpull_async.exceptions import DeadlockDetected

_FIRST, _SECOND, _OTHER = (Statement(name, f"SELECT '{name}'") for name in ("first", "second", "other"))


def _both(seen: list[object]) -> Procedure[str]:
    try:
        for statement in (_FIRST, _SECOND):
            try:
                seen.append((yield statement()).count)
            except DeadlockDetected as error:
                seen.append(error)
        return "answer"
    finally:
        seen.append("closed")


@contextmanager
def _ends_with(answer: str) -> Iterator[None]:
    with pytest.raises(StopIteration) as ended:
        yield
    assert ended.value.value == answer


def test_each_step_runs_as_it_was_changed_and_its_result_reaches_the_procedure() -> None:
    seen: list[object] = []
    procedure = changed(_both(seen), lambda step: step._replace(statement=_OTHER) if step == _FIRST() else step)

    assert next(procedure) == _OTHER()
    assert procedure.send(Result((), 1)) == _SECOND()
    with _ends_with("answer"):
        procedure.send(Result((), 2))

    assert seen == [1, 2, "closed"]


def test_a_step_with_a_result_instead_is_not_run() -> None:
    seen: list[object] = []

    def change(step: Step) -> Step | Result:
        return Result((), 7) if step == _FIRST() else step

    procedure = changed(_both(seen), change)

    assert next(procedure) == _SECOND()
    with _ends_with("answer"):
        procedure.send(Result((), 2))
    assert seen == [7, 2, "closed"]


def test_an_error_reaches_the_procedure_that_may_handle_it() -> None:
    seen: list[object] = []
    procedure = changed(_both(seen), lambda step: step)
    error = DeadlockDetected("ended")

    next(procedure)
    assert procedure.throw(error) == _SECOND()
    procedure.close()

    assert seen == [error, "closed"]


def test_what_the_change_raises_reaches_the_procedure_too() -> None:
    seen: list[object] = []
    error = DeadlockDetected("ended")

    def change(step: Step) -> Step:
        if step == _FIRST():
            raise error
        return step

    procedure = changed(_both(seen), change)

    assert next(procedure) == _SECOND()
    with _ends_with("answer"):
        procedure.send(Result((), 2))
    assert seen == [error, 2, "closed"]
