"""Whatever is done in whatever order, rows and locks are what a model of a few lines says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from oxpull_async import EnqueueResult
from oxpull_async.core.keys import unique_key
from oxpull_async.core.settlements import Settlement
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from tests.integration.machines import DatabaseMachine
from tests.scale import rounds

PATH = "proof.tasks.model"
RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}
PENDING = ("READY", "RUNNING")

arguments = st.sampled_from(["a", "b", "c"])
several = st.lists(arguments, max_size=6)


@dataclass
class Row:
    """A task row, as far as the model goes."""

    argument: str
    status: str
    epoch: int = 0
    attempts: int = 0
    max_attempts: int = 3


class Model:
    """What must be there: the rows by id, and the id that each key's lock names."""

    def __init__(self) -> None:
        self.rows: dict[UUID, Row] = {}
        self.locks: dict[str, UUID] = {}

    def holder(self, argument: str) -> UUID | None:
        named = self.locks.get(argument)
        row = self.rows.get(named) if named else None
        return named if row and row.status in PENDING else None

    def enqueued(self, result: EnqueueResult, argument: str, *, unique: bool) -> None:
        """An enqueue has answered: it's either the holder or a new row."""
        assert result.args == [argument]
        holder = self.holder(argument) if unique else None
        assert result.created is (holder is None)
        if holder:
            assert result.id == holder
            assert result.status == self.rows[holder].status
            return
        assert result.id not in self.rows
        self.rows[result.id] = Row(argument, "READY")
        if unique:
            self.locks[argument] = result.id

    def freed(self, task_id: UUID) -> None:
        """A task succeeded: the lock that names it goes with it."""
        self.locks = {argument: named for argument, named in self.locks.items() if named != task_id}

    def pruned(self) -> None:
        """Settled rows are gone, and all locks that name no pending one."""
        self.rows = {id: row for id, row in self.rows.items() if row.status in (*PENDING, "WAITING")}
        self.locks = {argument: id for argument, id in self.locks.items() if self.holder(argument)}


class Queue(DatabaseMachine):
    """Rows that are enqueued, run, settled, meddled with and pruned."""

    tasks = Bundle("tasks")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._model = Model()
        self._keys = {unique_key("default", PATH, "default", [name], {}): name for name in ("a", "b", "c")}

    def _task(self, *, unique: bool) -> Any:
        return self._ox.reference(PATH, unique=unique)

    # Enqueue

    @rule(target=tasks, argument=arguments)
    def enqueue(self, argument: str) -> UUID:
        result = self._run(self._task(unique=False).enqueue(argument))
        self._model.enqueued(result, argument, unique=False)
        return result.id

    @rule(target=tasks, argument=arguments)
    def enqueue_unique(self, argument: str) -> UUID:
        result = self._run(self._task(unique=True).enqueue(argument))
        self._model.enqueued(result, argument, unique=True)
        return result.id

    @rule(target=tasks, names=several)
    def enqueue_many(self, names: list[str]) -> Any:
        results = self._run(self._task(unique=False).enqueue_many([(name,) for name in names]))
        for result, name in zip(results, names, strict=True):
            self._model.enqueued(result, name, unique=False)
        return multiple(*(result.id for result in results))

    @rule(target=tasks, names=several)
    def enqueue_unique_many(self, names: list[str]) -> Any:
        results = self._run(self._task(unique=True).enqueue_many([(name,) for name in names]))
        for result, name in zip(results, names, strict=True):
            self._model.enqueued(result, name, unique=True)
        return multiple(*(result.id for result in results))

    @rule(target=tasks, names=several)
    def enqueue_unique_at_once(self, names: list[str]) -> Any:
        async def all_at_once() -> list[EnqueueResult]:
            return await asyncio.gather(*(self._task(unique=True).enqueue(name) for name in names))

        results = self._run(all_at_once())
        # Of those that wanted the same new key, one is the creator: it goes first.
        for result, name in sorted(zip(results, names, strict=True), key=lambda pair: not pair[0].created):
            self._model.enqueued(result, name, unique=True)
        return multiple(*(result.id for result in results))

    # Run

    @rule(target=claims, limit=st.integers(1, 4))
    def claim(self, limit: int) -> Any:
        request = ClaimRequest("worker-1", [PATH], None, limit, 300, datetime.now(UTC))
        claims = self._run(self._store.claim(request))
        ready = sum(row.status == "READY" for row in self._model.rows.values())
        assert len(claims) == min(limit, ready)
        for claim in claims:
            row = self._model.rows[claim.id]
            assert row.status == "READY"
            row.status, row.epoch, row.attempts = "RUNNING", row.epoch + 1, row.attempts + 1
            assert (claim.lease_epoch, claim.attempts) == (row.epoch, row.attempts)
        return multiple(*claims)

    @rule(claim=consumes(claims), ending=st.sampled_from(["SUCCESSFUL", "FAILED", "READY"]))
    def settle(self, claim: Claim, ending: str) -> None:
        settlement = {
            "SUCCESSFUL": Settlement.success(None),
            "FAILED": Settlement.failure(RECORD),
            "READY": Settlement.retry(RECORD, 0),
        }[ending]
        now = datetime.now(UTC)
        outcome = Outcome(claim.id, claim.lease_epoch, settlement, "[]", now if ending == "READY" else None, now)
        landed = list(self._run(self._store.settle([outcome])))

        row = self._model.rows.get(claim.id)
        may = row is not None and row.epoch == claim.lease_epoch and row.status in ("RUNNING", "LOST")
        assert landed == ([claim.id] if may else [])
        if row and may:
            row.status = ending
            if ending == "SUCCESSFUL":
                self._model.freed(claim.id)

    @rule(claim=consumes(claims))
    def give_back(self, claim: Claim) -> None:
        landed = list(self._run(self._store.release([claim], worker_id="worker-1")))

        row = self._model.rows.get(claim.id)
        may = row is not None and row.epoch == claim.lease_epoch and row.status == "RUNNING"
        assert landed == ([claim.id] if may else [])
        if row and may:
            row.status, row.epoch, row.attempts = "READY", row.epoch + 1, row.attempts - 1

    @rule()
    def all_workers_die(self) -> None:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        self._competitor.run(
            "UPDATE django_ox_oxtask SET locked_at = ?, lease_expires_at = ? WHERE status = 'RUNNING'",
            long_ago, long_ago,
        )  # fmt: skip
        reaped = self._run(self._ox.reap())

        running = {id: row for id, row in self._model.rows.items() if row.status == "RUNNING"}
        for row in running.values():
            if row.attempts < row.max_attempts:
                row.status, row.epoch = "READY", row.epoch + 1
            else:
                row.status = "LOST"
        assert set(reaped.requeued) == {id for id, row in running.items() if row.status == "READY"}
        assert set(reaped.lost) == {id for id, row in running.items() if row.status == "LOST"}

    # Meddle

    @rule(task_id=tasks)
    def retry(self, task_id: UUID) -> None:
        done = self._run(self._ox.actions.retry(task_id))

        row = self._model.rows.get(task_id)
        assert done is (row is not None and row.status in ("FAILED", "LOST"))
        if row and done:
            row.status, row.epoch, row.max_attempts = "READY", row.epoch + 1, row.attempts + 1

    @rule(task_id=tasks)
    def discard(self, task_id: UUID) -> None:
        done = self._run(self._ox.actions.discard(task_id))

        row = self._model.rows.get(task_id)
        assert done is (row is not None and row.status in ("READY", "WAITING", "FAILED", "LOST"))
        if row and done:
            row.status = "DISCARDED"

    @rule(task_id=consumes(tasks))
    def delete(self, task_id: UUID) -> None:
        if self._model.rows.pop(task_id, None):
            self._competitor.delete_task(task_id)

    @rule(task_id=tasks, status=st.sampled_from([*TaskStatus]))
    def set_status(self, task_id: UUID, status: TaskStatus) -> None:
        row = self._model.rows.get(task_id)
        if row and row.status != status:
            finished = None if status in (*PENDING, "WAITING") else datetime.now(UTC)
            self._competitor.set_task(task_id, status=str(status), finished_at=finished, run_after=None)
            row.status = str(status)

    @rule()
    def prune(self) -> None:
        self._run(self._ox.prune(older_than=0, include_failed=True))
        self._model.pruned()

    # Behold

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        statuses = self._competitor.statuses()
        assert statuses == {id: row.status for id, row in self._model.rows.items()}
        locks = {self._keys[key]: named for key, named in self._competitor.locks().items()}
        assert locks == self._model.locks


@pytest.mark.timeout(rounds(small=120, full=3600))
def test_rows_and_locks_are_what_the_model_says(migrated_url: str):
    class AtThisDatabase(Queue):
        url = migrated_url

    run_state_machine_as_test(
        AtThisDatabase,
        settings=settings(
            max_examples=rounds(small=15, full=500),
            stateful_step_count=rounds(small=25, full=50),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
