"""The MySQL family's procedures, statement by statement, with every answer played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest

from oxpull_async._ids import new_id
from oxpull_async.core.settlements import Settlement
from oxpull_async.drivers._procedure import Procedure, Result, Step
from oxpull_async.drivers.mysql import claims, maintenance, outcomes, unique
from oxpull_async.exceptions import DeadlockDetected, LockNotAvailable, SavepointMissing, StoreError, UniqueViolation
from oxpull_async.ports import Held, Inserted, NewUnique, Outcome, TakeOver, Unseen
from tests.conformance.rows import RECORD, new_task, new_unique, now, request

T = TypeVar("T")

Answer = Result | StoreError | list[Any] | int
NO_ROW = (None,) * 23


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


class TestOneKey:
    def test_a_visible_holder_is_not_written_to(self):
        candidate = new_unique("a")

        (answer,), _ = played(unique.insert([candidate], 10), [("read_holder", [holder(candidate)])])

        assert isinstance(answer, Held)
        assert answer.row is not None

    def test_a_free_key_takes_one_look_and_one_write(self):
        candidate = new_unique("a")

        (answer,), steps = played(unique.insert([candidate], 10), [("read_holder", []), ("insert_unique", 2)])

        assert answer == Inserted()
        assert steps[1].values["id"] == candidate.task.id.hex

    def test_a_key_lost_after_the_look_is_looked_at_again(self):
        candidate = new_unique("a")
        winner = new_id()

        (answer,), _ = played(
            unique.insert([candidate], 10),
            [("read_holder", []), ("insert_unique", [(1,)]), ("read_holder", [holder(candidate, winner)])],
        )

        assert isinstance(answer, Held)
        assert answer.task_id == winner

    def test_a_winner_that_is_gone_again_is_unseen(self):
        (answer,), _ = played(
            unique.insert([new_unique("a")], 10),
            [("read_holder", []), ("insert_unique", 0), ("read_holder", [])],
        )

        assert answer == Unseen()

    def test_a_wait_in_vain_is_begun_anew(self):
        (answer,), _ = played(
            unique.insert([new_unique("a")], 10),
            [
                ("read_holder", []),
                ("insert_unique", busy()),
                ("rollback", 0),
                ("read_holder", []),
                ("insert_unique", 2),
            ],
        )

        assert answer == Inserted()

    def test_a_short_wait_is_made_of_looks(self):
        (answer,), _ = played(
            unique.insert([new_unique("a")], 0.5),
            [
                ("read_holder", []),
                ("insert_unique_at_once", busy()),
                ("rollback", 0),
                ("pause", 0),
                ("read_holder", []),
                ("insert_unique_at_once", 2),
            ],
        )

        assert answer == Inserted()

    def test_the_wait_ends(self):
        with pytest.raises(LockNotAvailable):
            played(
                unique.insert([new_unique("a")], 0),
                [("read_holder", []), ("insert_unique_at_once", busy()), ("rollback", 0)],
            )

    def test_a_deadlock_is_for_others_to_repeat(self):
        with pytest.raises(DeadlockDetected):
            played(
                unique.insert([new_unique("a")], 10),
                [("read_holder", []), ("insert_unique", DeadlockDetected("victim", code=1213))],
            )

    def test_an_id_that_exists_is_told(self):
        with pytest.raises(UniqueViolation):
            played(
                unique.insert([new_unique("a")], 10),
                [("read_holder", []), ("insert_unique", UniqueViolation("id", code=1062))],
            )


class TestManyKeys:
    def test_no_keys_are_no_statements(self):
        procedure = unique.insert([], 10)

        with pytest.raises(StopIteration) as stop:
            next(procedure)

        assert stop.value.value == []

    def test_only_free_keys_are_locked_and_all_in_one_transaction(self):
        taken, *free = (new_unique(key) for key in "abc")

        answers, steps = played(
            unique.insert([taken, *free], 10),
            [
                ("read_holders", [holder(taken)]),
                ("begin", 0),
                ("lock_keys", []),
                ("insert_lock", 2),
                ("insert_task", 2),
                ("commit", 0),
            ],
        )

        assert [type(answer) for answer in answers] == [Held, Inserted, Inserted]
        assert steps[2].values["keys"] == tuple(candidate.key for candidate in free)

    def test_which_were_won_is_read_from_the_locks(self):
        won, lost = new_unique("a"), new_unique("b")

        answers, steps = played(
            unique.insert([won, lost], 10),
            [
                ("read_holders", []),
                ("begin", 0),
                ("lock_keys", [(None,)]),
                ("insert_lock", 1),
                ("read_locks", [(won.key, str(won.task.id)), (lost.key, new_id().hex)]),
                ("insert_task", 1),
                ("commit", 0),
                ("read_holder", [holder(lost)]),
            ],
        )

        assert [type(answer) for answer in answers] == [Inserted, Held]
        assert steps[5].many is not None
        assert [row["id"] for row in steps[5].many] == [won.task.id.hex]


class TestTogether:
    def test_stale_and_missing_keys_are_written_in_one_order(self):
        first, stale, last = (new_unique(key) for key in "abc")
        old = new_id()

        answers, steps = played(
            unique.insert_together([first, stale, last], 10, 5),
            [
                ("read_holders", [holder(stale, old, "FAILED")]),
                ("savepoint", 0),
                ("lock_holders", [stored(old, "FAILED")]),
                ("savepoint", 0),
                ("lock_keys", []),
                ("insert_lock", 1),
                ("insert_task", 1),
                ("savepoint", 0),
                ("take_locks_over", 1),
                ("insert_task", 1),
                ("savepoint", 0),
                ("lock_keys", []),
                ("insert_lock", 1),
                ("insert_task", 1),
            ],
        )

        assert answers == [Inserted()] * 3
        assert steps[4].values["keys"] == (first.key,)
        assert old.hex in steps[8].values["locks"]

    def test_a_holder_that_is_pending_again_keeps_its_key(self):
        candidate = new_unique("a")
        old = new_id()

        (answer,), _ = played(
            unique.insert_together([candidate], 10, 5),
            [
                ("read_holder", [holder(candidate, old, "LOST")]),
                ("savepoint", 0),
                ("lock_holders", [stored(old, "READY")]),
            ],
        )

        assert isinstance(answer, Held)
        assert answer.row is not None
        assert answer.row.status == "READY"

    def test_a_wait_in_vain_is_undone_to_its_savepoint(self):
        (answer,), _ = played(
            unique.insert_together([new_unique("a")], 10, 5),
            [
                ("read_holder", []),
                ("savepoint", 0),
                ("lock_keys", busy()),
                ("rollback_to_savepoint", 0),
                ("savepoint", 0),
                ("lock_keys", []),
                ("insert_lock", 1),
                ("insert_task", 1),
            ],
        )

        assert answer == Inserted()

    def test_a_transaction_that_went_with_the_wait_is_not_gone_on_with(self):
        with pytest.raises(LockNotAvailable):
            played(
                unique.insert_together([new_unique("a")], 10, 5),
                [
                    ("read_holder", []),
                    ("savepoint", 0),
                    ("lock_keys", busy()),
                    ("rollback_to_savepoint", SavepointMissing("SAVEPOINT oxpull_wait does not exist", code=1305)),
                ],
            )

    def test_passes_end(self):
        candidate = new_unique("a")
        one_pass: list[tuple[str, Answer]] = [
            ("read_holder", []),
            ("savepoint", 0),
            ("lock_keys", []),
            ("insert_lock", 0),
            ("read_locks", []),
        ]

        (answer,), _ = played(unique.insert_together([candidate], 10, 2), one_pass * 2)

        assert answer == Unseen()


class TestTakeOver:
    def test_a_lock_that_has_moved_is_unseen(self):
        old = new_id()

        answer, _ = played(
            unique.take_over(TakeOver(new_unique("a"), old), 10),
            [
                ("savepoint", 0),
                ("lock_holders", []),
                ("savepoint", 0),
                ("take_locks_over", 0),
                ("read_locks", [("a", new_id().hex)]),
            ],
        )

        assert answer == Unseen()

    def test_a_lock_that_names_nobody_has_no_holder_to_lock(self):
        answer, _ = played(
            unique.take_over(TakeOver(new_unique("a"), None), 10),
            [("savepoint", 0), ("take_locks_over", 1), ("insert_task", 1)],
        )

        assert answer == Inserted()


class TestClaims:
    def test_a_look_that_finds_nothing_is_all(self):
        claimed, steps = played(claims.claim(request(task_paths=["a", "b"])), [("find_due", [])])

        assert claimed == []
        assert steps[0].many is not None
        assert [row["task_path"] for row in steps[0].many] == ["a", "b"]

    def test_no_paths_claim_nothing(self):
        claimed, _ = played(claims.claim(request(task_paths=[])), [("find_due", [])])

        assert claimed == []

    def test_each_line_gives_its_share_of_the_heads(self):
        at = now()
        heads = [("a", 0, at), ("a", 0, at.replace(year=2030)), ("b", 5, at), ("b", 0, at.replace(year=2029))]

        _, steps = played(
            claims.claim(request(task_paths=["a", "b"], limit=3)),
            [("find_due", heads), ("begin", 0), ("lock_due", []), ("lock_due", []), ("commit", 0)],
        )

        assert limits_of(steps[2]) == {"a": 1, "b": 2}

    def test_rows_that_others_are_taking_are_made_up_for_from_any_line(self):
        at = now()
        heads = [("a", 0, at), ("a", 0, at), ("b", -1, at)]

        _, steps = played(
            claims.claim(request(task_paths=["a", "b"], limit=2)),
            [
                ("find_due", heads),
                ("begin", 0),
                ("lock_due", [("1", 0, at)]),
                ("lock_due", [("1", 0, at), ("2", -1, at), ("3", -1, at)]),
                ("grant_claims", []),
            ],
        )

        assert limits_of(steps[2]) == {"a": 2}
        assert limits_of(steps[3]) == {"a": 3, "b": 1}
        assert steps[4].values["ids"] == ("1", "2")


def limits_of(step: Step) -> dict[str, int]:
    assert step.many is not None
    return {row["task_path"]: row["limit"] for row in step.many}


class TestOutcomes:
    def test_only_a_success_asks_for_locks(self):
        failed = Outcome(new_id(), 1, Settlement.failure(RECORD), "[]", None, now())

        landed, _ = played(
            outcomes.settle([failed]),
            [("begin", 0), ("lock_outcomes", [(failed.id.hex,)]), ("write_outcomes", 1), ("commit", 0)],
        )

        assert landed == [failed.id]

    def test_what_lost_its_lease_writes_nothing_and_keeps_its_lock(self):
        late = Outcome(new_id(), 1, Settlement.success(None), "[]", None, now())

        landed, _ = played(
            outcomes.settle([late]),
            [
                ("find_task_locks", [("k" * 64, late.id.hex)]),
                ("begin", 0),
                ("lock_outcomes", []),
                ("commit", 0),
            ],
        )

        assert landed == []


class TestMaintenance:
    def test_a_pass_that_finds_nothing_locks_nothing(self):
        reaped, _ = played(maintenance.reap(300, 100, now()), [("find_expired", [])])

        assert (reaped.requeued, reaped.lost) == ([], [])

    def test_an_operator_waits_for_a_busy_row(self):
        task = new_task()

        changed, _ = played(
            maintenance.retry([task.id]),
            [
                ("begin", 0),
                ("lock_retryable", busy()),
                ("rollback", 0),
                ("begin", 0),
                ("lock_retryable", [(task.id.hex,)]),
                ("retry", 1),
                ("commit", 0),
            ],
        )

        assert changed == [task.id]

    def test_locks_of_nobody_and_of_settled_holders_are_deleted_but_not_of_busy_ones(self):
        settled, busy_one = new_id(), new_id()
        found = [("a", None, None), ("b", settled.hex, settled.hex), ("c", busy_one.hex, busy_one.hex)]

        deleted, steps = played(
            maintenance.prune_locks(100),
            [("find_stale_locks", found), ("lock_settled_holders", [(settled.hex,)]), ("delete_locks", 2)],
        )

        assert deleted == 2
        assert busy_one.hex not in steps[2].values["locks"]
