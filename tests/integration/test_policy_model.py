"""Debounce, replace, rerun and holds: whatever is done in whatever order, the rows are what a model says."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, invariant, multiple, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from oxpull_async import DuplicateTask, EnqueueResult
from oxpull_async.core.settlements import Settlement
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from tests.integration.machines import DatabaseMachine
from tests.integration.policy_tasks import PATH, RECORD, UNIQUES, reruns, task_of
from tests.scale import rounds

PENDING = ("READY", "RUNNING")
MAX_DELAY, WINDOW = 100, 1000
START = datetime(2026, 1, 1, tzinfo=UTC)

names = st.sampled_from(["a", "b"])
values = st.integers(0, 9)
delays = st.sampled_from([None, 5, 60, 500])


@dataclass
class Row:
    """A task row, as far as the model goes."""

    args: list[Any]
    run_after: datetime | None
    enqueued_at: datetime
    status: str = "READY"
    epoch: int = 0
    attempts: int = 0
    max_attempts: int = 3


class Model:
    """The rows, and for each name which row has its key, and what is to run when that has ended."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.now = START
        self.rows: dict[UUID, Row] = {}
        self.keys: dict[str, UUID] = {}
        self.reruns: dict[str, tuple[UUID, list[Any], datetime | None, datetime]] = {}

    def holder(self, name: str) -> Row | None:
        row = self.rows.get(self.keys[name]) if name in self.keys else None
        if row is None:
            return None
        held = row.status == "READY" or (row.status == "RUNNING" and self.kind != "ready")
        if self.kind == "window":
            held = held or self.now < row.enqueued_at + timedelta(seconds=WINDOW)
        return row if held else None

    def pruned(self) -> None:
        """Keys of ended rows are forgotten, but for those that a window holds still."""
        for name, task_id in list(self.keys.items()):
            row = self.rows.get(task_id)
            ended = row is None or row.status not in PENDING
            if ended and self.holder(name) is None:
                del self.keys[name]

    def cap(self, run_after: datetime | None, enqueued_at: datetime) -> datetime | None:
        if self.kind != "reschedule" or run_after is None:
            return run_after
        return min(run_after, enqueued_at + timedelta(seconds=MAX_DELAY))

    def enqueued(self, result: EnqueueResult, name: str, value: int, run_after: datetime | None) -> None:
        """An enqueue has answered."""
        holder = self.holder(name)
        assert result.created is (holder is None)
        if holder is None:
            assert result.id not in self.rows
            self.rows[result.id] = Row([name, value], self.cap(run_after, self.now), self.now)
            self.keys[name] = result.id
            self.reruns.pop(name, None)
        else:
            assert result.id == self.keys[name]
            self._repeated(holder, name, value, run_after)
        row = self.rows[result.id]
        assert (result.args, result.status, result.run_after) == (row.args, row.status, row.run_after)

    def _repeated(self, holder: Row, name: str, value: int, run_after: datetime | None) -> None:
        if holder.status == "READY":
            if self.kind == "reschedule":
                holder.run_after = self.cap(run_after, holder.enqueued_at)
            if self.kind in ("replace", "rerun"):
                holder.args = [name, value]
                self.reruns.pop(name, None)
        elif self.kind == "rerun":
            self.reruns[name] = (self.keys[name], [name, value], run_after, self.now)

    def due(self) -> list[str]:
        """The names whose rerun waits for nothing any more."""
        return [
            name
            for name, (task_id, *_) in self.reruns.items()
            if task_id not in self.rows or self.rows[task_id].status not in PENDING
        ]

    def started(self, name: str, task_id: UUID) -> None:
        """The rerun is a row by now."""
        _, args, run_after, asked_at = self.reruns.pop(name)
        self.rows[task_id] = Row(args, run_after, asked_at)
        self.keys[name] = task_id


class Queue(DatabaseMachine):
    """One kind of unique task at one database, with a clock that is set."""

    kind: str
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._model = Model(self.kind)
        self._ox.clock.read_from(lambda: self._model.now)

    def _after(self, delay: int | None) -> datetime | None:
        return None if delay is None else self._model.now + timedelta(seconds=delay)

    # Enqueue

    @rule(name=names, value=values, delay=delays)
    def enqueue(self, name: str, value: int, delay: int | None) -> None:
        task = task_of(self._ox, self.kind)
        task = task if delay is None else task.using(run_after=delay)
        holder = self._model.holder(name)
        try:
            result = self._run(task.enqueue(name, value))
        except DuplicateTask as refusal:
            assert self.kind == "raise"
            assert holder is not None
            assert refusal.holder_id == self._model.keys[name]
            return
        assert self.kind != "raise" or holder is None
        self._model.enqueued(result, name, value, self._after(delay))

    @rule(pairs=st.lists(st.tuples(names, values), max_size=4), delay=delays)
    def enqueue_many(self, pairs: list[tuple[str, int]], delay: int | None) -> None:
        if self.kind == "raise":
            return
        task = task_of(self._ox, self.kind)
        task = task if delay is None else task.using(run_after=delay)
        results = self._run(task.enqueue_many(pairs))
        for result, (name, value) in zip(results, pairs, strict=True):
            self._model.enqueued(result, name, value, self._after(delay))

    @rule(pair=st.tuples(names, values))
    def enqueue_and_roll_back(self, pair: tuple[str, int]) -> None:
        class RolledBack(Exception):
            """Raised to have it."""

        async def enqueue() -> None:
            async with self._ox.transaction() as transaction:
                with contextlib.suppress(DuplicateTask):
                    await transaction.enqueue(task_of(self._ox, self.kind), pair[0], pair[1])
                raise RolledBack

        with pytest.raises(RolledBack):
            self._run(enqueue())

    # Run

    @rule(seconds=st.sampled_from([1, 30, 90, 700]))
    def time_goes_by(self, seconds: int) -> None:
        self._model.now += timedelta(seconds=seconds)

    @rule(target=claims)
    def claim(self) -> Any:
        request = ClaimRequest("worker-1", [PATH], None, 1, 300, self._model.now)
        claims = self._run(self._store.claim(request))
        for claim in claims:
            row = self._model.rows[claim.id]
            assert row.status == "READY"
            assert row.run_after is None or row.run_after <= self._model.now
            assert json.loads(claim.args) == row.args
            row.status, row.epoch, row.attempts = "RUNNING", row.epoch + 1, row.attempts + 1
        return multiple(*claims)

    @rule(claim=consumes(claims), ending=st.sampled_from(["SUCCESSFUL", "FAILED", "READY"]), ours=st.booleans())
    def settle(self, claim: Claim, ending: str, ours: bool) -> None:
        """Our own worker tells that there may be a rerun, others know of none."""
        settlement = {
            "SUCCESSFUL": Settlement.success(None),
            "FAILED": Settlement.failure(RECORD),
            "READY": Settlement.retry(RECORD, 0),
        }[ending]
        now = self._model.now
        outcome = Outcome(
            claim.id, claim.lease_epoch, settlement, "[]", now if ending == "READY" else None, now,
            may_rerun=ours and settlement.finishes,
        )  # fmt: skip
        landed = list(self._run(self._store.settle([outcome])))
        row = self._model.rows.get(claim.id)
        may = row is not None and row.epoch == claim.lease_epoch and row.status in ("RUNNING", "LOST")
        assert landed == ([claim.id] if may else [])
        if row and may:
            row.status = ending
            if ending == "READY":
                row.run_after = now
            elif ours:
                self._take_started([name for name in self._model.due() if self._model.reruns[name][0] == claim.id])

    @rule()
    def sweep(self) -> None:
        due = self._model.due()
        assert self._run(self._ox.unique.sweep()) == len(due)
        self._take_started(due)

    def _take_started(self, due: list[str]) -> None:
        new = [id for id in self._competitor.statuses() if id not in self._model.rows]
        by_name = {json.loads(self._args(id))[0]: id for id in new}
        assert sorted(by_name) == sorted(due)
        assert len(new) == len(due)
        for name in due:
            self._model.started(name, by_name[name])

    # Meddle

    @rule(data=st.data(), deed=st.sampled_from(["discard", "retry", "delete"]))
    def meddle(self, data: st.DataObject, deed: str) -> None:
        if not self._model.rows:
            return
        task_id = data.draw(st.sampled_from(sorted(self._model.rows)))
        row = self._model.rows[task_id]
        if deed == "delete":
            self._competitor.delete_task(task_id)
            del self._model.rows[task_id]
        elif deed == "discard":
            done = self._run(self._ox.actions.discard(task_id))
            assert done is (row.status in ("READY", "FAILED", "LOST"))
            row.status = "DISCARDED" if done else row.status
        else:
            done = self._run(self._ox.actions.retry(task_id))
            assert done is (row.status in ("FAILED", "LOST"))
            if done:
                row.status, row.epoch, row.run_after = "READY", row.epoch + 1, None

    @rule()
    def prune_locks_and_holds(self) -> None:
        """Of whom has ended nothing keeps the key then, although an operator may put the row back to READY."""
        self._run(self._ox.prune(older_than=10**8))
        self._model.pruned()

    # Behold

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        found = self._competitor.statuses()
        assert found == {id: row.status for id, row in self._model.rows.items()}
        for id, row in self._model.rows.items():
            assert json.loads(self._args(id)) == row.args
        assert reruns(self._competitor) == sorted(args for _, args, _, _ in self._model.reruns.values())

    @invariant()
    def a_key_has_one_waiting_row_but_for_those_that_were_superseded(self) -> None:
        for name in ("a", "b"):
            held = self._run(self._ox.unique.holder(task_of(self._ox, self.kind), name))
            expected = self._model.holder(name)
            assert (held is None) is (expected is None)
            assert held is None or held.task.id == self._model.keys[name]

    def _args(self, task_id: UUID) -> str:
        (args,) = self._competitor.row(task_id, "args")
        return args if isinstance(args, str) else json.dumps(args)


@pytest.mark.parametrize("policy", UNIQUES)
@pytest.mark.timeout(rounds(small=120, full=3600))
def test_the_rows_are_what_the_model_says(migrated_url: str, policy: str) -> None:
    class AtThisDatabase(Queue):
        url = migrated_url
        kind = policy

    run_machine(
        AtThisDatabase,
        settings=settings(
            max_examples=rounds(small=8, full=300),
            stateful_step_count=rounds(small=25, full=50),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
