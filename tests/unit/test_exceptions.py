"""Errors of this library as values: they reach other processes whole."""

from __future__ import annotations

import copy
import pickle
from uuid import uuid4

import pytest

from oxpull_async import (
    BatchMemberExists,
    BatchSealed,
    Discard,
    ExclusiveTimeout,
    InvalidArguments,
    OxpullError,
    Retry,
    Snooze,
    StoreError,
    TaskFailed,
    TaskTimeout,
    UniqueEnqueueRace,
    UniqueViolation,
)


def _transient() -> StoreError:
    error = StoreError("the disk is full", code=1021)
    error.transient = True
    return error


@pytest.mark.parametrize(
    "error",
    [
        UniqueEnqueueRace("undecided", reason="snapshot", retry="transaction", attempts=2, holder_id=uuid4()),
        BatchSealed("sealed", batch_id=uuid4(), status="SEALED"),
        BatchMemberExists("there already", batch_id=uuid4(), task_id=uuid4()),
        TaskFailed("failed", task_id=uuid4(), status="FAILED", errors=[{"traceback": "no"}]),
        TaskTimeout(1.5),
        ExclusiveTimeout("not in time"),
        Retry(3, "later"),
        Snooze(3),
        Discard("no use"),
        InvalidArguments("argument 1"),
        UniqueViolation("exists", code="23505", table="note"),
        _transient(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("passed", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_an_error_arrives_as_it_was(error: OxpullError, passed: object):
    assert callable(passed)
    found = passed(error)

    assert type(found) is type(error)
    assert (str(found), found.args, found.__dict__) == (str(error), error.args, error.__dict__)
