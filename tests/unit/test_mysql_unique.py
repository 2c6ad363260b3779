"""Unique enqueue on the MySQL family, statement by statement."""

from __future__ import annotations

import pytest

from oxpull_async._ids import new_id
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers.mysql import joined, unique
from oxpull_async.exceptions import DeadlockDetected, LockNotAvailable, SavepointMissing, UniqueViolation
from oxpull_async.ports import Held, Inserted, NewUnique, TakeOver, Unseen
from oxpull_async.ports_joined import JoinedAnswers
from tests.conformance.rows import new_unique
from tests.unit.mysql_plays import Answer, busy, exists, holder, played, stored


class TestTurns:
    """Of those who want one key in transactions of callers', one at a time waits inside its INSERT."""

    READ_COMMITTED: tuple[str, Answer] = ("read_level", [("READ-COMMITTED", "OFF")])

    def joined(self, candidate: NewUnique) -> Procedure[JoinedAnswers]:
        return joined.insert_unique([candidate], None, 5, current=False)

    def test_a_missing_key_is_inserted_in_its_turn(self):
        candidate = new_unique("a")

        answer, steps = played(
            self.joined(candidate),
            [
                self.READ_COMMITTED, ("open", 0), ("read_holders", []), ("get_turn", [(1,)]), ("insert_lock", 1),
                ("read_locks", [(candidate.key, candidate.task.id.hex)]), ("insert_task", 1), ("end_turn", [(1,)]),
                ("release", 0),
            ],
        )  # fmt: skip

        assert answer.answers == [Inserted()]
        assert {step.values["key"] for step in steps if "turn" in step.statement.name} == {candidate.key}

    def test_who_gets_no_turn_goes_on_without(self):
        candidate = new_unique("a")

        played(
            self.joined(candidate),
            [
                self.READ_COMMITTED, ("open", 0), ("read_holders", []), ("get_turn", [(0,)]), ("insert_lock", 1),
                ("read_locks", [(candidate.key, candidate.task.id.hex)]), ("insert_task", 1), ("release", 0),
            ],
        )  # fmt: skip

    def test_an_error_ends_the_turn_too(self):
        with pytest.raises(LockNotAvailable):
            played(
                self.joined(new_unique("a")),
                [
                    self.READ_COMMITTED, ("open", 0), ("read_holders", []), ("get_turn", [(1,)]),
                    ("insert_lock", busy()), ("end_turn", [(1,)]), ("roll_back", 0), ("release", 0),
                ],
            )  # fmt: skip

    def test_a_key_that_is_held_takes_no_turn(self):
        candidate = new_unique("a")

        played(
            self.joined(candidate),
            [self.READ_COMMITTED, ("open", 0), ("read_holders", [holder(candidate)]), ("release", 0)],
        )


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

    def test_a_key_that_is_probably_free_takes_one_write(self):
        candidate = new_unique("a")

        (answer,), _ = played(unique.insert([candidate], 10, probably_free=True), [("insert_unique", 2)])

        assert answer == Inserted()

    def test_a_key_that_was_wrongly_thought_to_be_free_is_looked_at(self):
        candidate = new_unique("a")

        (answer,), _ = played(
            unique.insert([candidate], 10, probably_free=True),
            [("insert_unique", exists()), ("rollback", 0), ("read_holder", [holder(candidate)])],
        )

        assert isinstance(answer, Held)

    def test_a_key_lost_after_the_look_is_looked_at_again(self):
        candidate = new_unique("a")
        winner = new_id()

        (answer,), _ = played(
            unique.insert([candidate], 10),
            [
                ("read_holder", []),
                ("insert_unique", exists()),
                ("rollback", 0),
                ("read_holder", [holder(candidate, winner)]),
            ],
        )

        assert isinstance(answer, Held)
        assert answer.task_id == winner

    def test_a_winner_that_is_gone_again_is_unseen(self):
        (answer,), _ = played(
            unique.insert([new_unique("a")], 10),
            [
                ("read_holder", []),
                ("insert_unique", exists()),
                ("rollback", 0),
                ("read_holder", []),
                ("get_task", []),
            ],
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
        candidate = new_unique("a")

        with pytest.raises(UniqueViolation):
            played(
                unique.insert([candidate], 10),
                [
                    ("read_holder", []),
                    ("insert_unique", exists()),
                    ("rollback", 0),
                    ("read_holder", []),
                    ("get_task", [stored(candidate.task.id)]),
                ],
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
