"""Whether the next key of a task is thought to be free."""

from __future__ import annotations

import pytest

from oxpull_async._ids import new_id
from oxpull_async.enqueueing import expectations
from oxpull_async.enqueueing.expectations import FREE_IN_A_ROW, Expectations
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, Unseen
from tests.conformance.rows import new_unique


def some(task_path: str) -> NewUnique:
    return new_unique(str(new_id()), task_path=task_path)


def after(*answers: Attempt | None, task_path: str = "tasks.a") -> Expectations:
    learnt = Expectations()
    for answer in answers:
        learnt.learn(some(task_path), answer)
    return learnt


FREE = [Inserted()] * FREE_IN_A_ROW


def test_nothing_is_thought_of_a_task_that_is_new():
    assert not after().free([some("tasks.a")])


def test_enough_free_keys_in_a_row_make_the_next_one_probably_free():
    assert not after(*FREE[1:]).free([some("tasks.a")])
    assert after(*FREE).free([some("tasks.a")])


@pytest.mark.parametrize("answer", [Held(None, None), Unseen(), None], ids=["held", "unseen", "failed"])
def test_one_that_was_not_free_begins_the_row_anew(answer: Attempt | None):
    assert not after(*FREE, answer).free([some("tasks.a")])
    assert not after(*FREE, answer, *FREE[1:]).free([some("tasks.a")])
    assert after(*FREE, answer, *FREE).free([some("tasks.a")])


def test_each_task_has_a_row_of_its_own():
    learnt = after(*FREE)

    assert not learnt.free([some("tasks.b")])
    assert not learnt.free([some("tasks.a"), some("tasks.b")])


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expectations, "_MOST_TASKS", 3)
    learnt = after(*FREE)

    for number in range(3):
        learnt.learn(some(f"tasks.{number}"), Inserted())

    assert not learnt.free([some("tasks.a")])
    assert learnt.free([])
