"""Claims, outcomes and maintenance on the MySQL family, statement by statement."""

from __future__ import annotations

from oxpull_async._ids import new_id
from oxpull_async.core.settlements import Settlement
from oxpull_async.drivers._procedure import Step
from oxpull_async.drivers.mysql import claims, maintenance, outcomes
from oxpull_async.ports import Outcome
from tests.conformance.rows import RECORD, new_task, now, request
from tests.unit.mysql_plays import busy, played


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
        heads = [
            ("1", "a", 0, at, 0),
            ("2", "a", 0, at.replace(year=2030), 0),
            ("3", "b", 5, at, 0),
            ("4", "b", 0, at.replace(year=2029), 0),
        ]

        _, steps = played(
            claims.claim(request(task_paths=["a", "b"], limit=3)),
            [("find_due", heads), ("begin", 0), ("lock_due", []), ("lock_due", []), ("commit", 0)],
        )

        assert limits_of(steps[2]) == {"a": 1, "b": 2}

    def test_rows_that_others_are_taking_are_made_up_for_from_any_line(self):
        at = now()
        heads = [("1", "a", 0, at, 0), ("2", "a", 0, at, 0), ("3", "b", -1, at, 0)]

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

    def test_late_rows_are_locked_by_their_ids_and_the_next_ones_where_others_take_those(self):
        at = now()
        heads = [("1", "a", 0, at, 0), ("2", "a", 1, at, 1), ("3", "a", -1, at, 1), ("4", "a", -2, at, 1)]

        _, steps = played(
            claims.claim(request(task_paths=["a"], limit=2)),
            [
                ("find_due", heads),
                ("begin", 0),
                ("lock_due", [("1", 0, at)]),
                ("lock_late", []),
                ("lock_due", [("1", 0, at)]),
                ("lock_late", [("3", -1, at)]),
                ("grant_claims", []),
            ],
        )

        assert steps[3].values["ids"] == ("2",)
        assert steps[5].values["ids"] == ("3",)
        assert steps[6].values["ids"] == ("1", "3")

    def test_of_very_many_late_rows_the_first_of_all_rows_are_looked_at(self):
        at = now()
        storm = [(str(number), "a", 0, at, 1) for number in range(500)]

        _, steps = played(
            claims.claim(request(task_paths=["a"], limit=1)),
            [
                ("find_due", storm),
                ("find_due_among_first", [("x", "a", 9, at, 1)]),
                ("begin", 0),
                ("lock_late", [("x", 9, at)]),
                ("grant_claims", []),
            ],
        )

        assert steps[4].values["ids"] == ("x",)

    def test_where_others_stand_ahead_of_very_many_late_rows_they_are_put_in_order(self):
        at = now()
        storm = [(str(number), "a", 0, at, 1) for number in range(500)]

        _, steps = played(
            claims.claim(request(task_paths=["a"], limit=2)),
            [
                ("find_due", [*storm, ("y", "a", 10, at, 0)]),
                ("find_due_among_first", [("x", "a", 9, at, 1)]),
                ("find_late", [("x", "a", 9, at, 1), ("z", "a", 8, at, 1)]),
                ("begin", 0),
                ("lock_due", [("y", 10, at)]),
                ("lock_late", [("x", 9, at)]),
                ("grant_claims", []),
            ],
        )

        assert steps[6].values["ids"] == ("y", "x")


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
