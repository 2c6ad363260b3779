"""Whatever two workers, a reaper and an operator do in whatever order, leases are what a model of a few lines says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, multiple, rule, run_state_machine_as_test

from oxpull_async.core.settlements import Settlement
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from tests.integration.machines import DatabaseMachine
from tests.scale import rounds

PATH = "proof.tasks.leased"
RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}
WORKERS = ("worker-1", "worker-2")
ENDINGS = {
    "SUCCESSFUL": Settlement.success("1"),
    "FAILED": Settlement.failure(RECORD),
    "READY": Settlement.retry(RECORD, 0),
    "DISCARDED": Settlement.discard(RECORD),
}


@dataclass
class Row:
    """A task row, as far as the model goes."""

    status: str = "READY"
    epoch: int = 0
    attempts: int = 0
    max_attempts: int = 2
    workers: list[str] = field(default_factory=list)
    holder: str | None = None
    is_expired: bool = False

    def let_go(self, status: str, *, epochs: int = 0) -> None:
        """Nobody holds it any more."""
        self.status, self.epoch, self.holder, self.is_expired = status, self.epoch + epochs, None, False

    def refund(self) -> None:
        """The last claim is taken off its history."""
        self.attempts -= 1
        self.workers.pop()


class Leases(DatabaseMachine):
    """Rows that are claimed, renewed, settled, handed back, expired, reaped and meddled with."""

    tasks = Bundle("tasks")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[UUID, Row] = {}

    def _granted(self, claim: Claim, *statuses: str) -> Row | None:
        """The row, if it's still as this grant left it."""
        row = self._rows[claim.id]
        return row if row.epoch == claim.lease_epoch and row.status in statuses else None

    @rule(target=tasks)
    def enqueue(self) -> UUID:
        result = self._run(self._ox.reference(PATH, max_attempts=2).enqueue())
        self._rows[result.id] = Row()
        return result.id

    @rule(target=claims, worker=st.sampled_from(WORKERS), limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> Any:
        request = ClaimRequest(worker, [PATH], None, limit, 300, datetime.now(UTC))
        claims = self._run(self._store.claim(request))
        assert len(claims) == min(limit, sum(row.status == "READY" for row in self._rows.values()))
        for claim in claims:
            row = self._rows[claim.id]
            assert row.status == "READY"
            row.workers.append(worker)
            row.attempts += 1
            row.let_go("RUNNING", epochs=1)
            row.holder = worker
            assert (claim.lease_epoch, claim.attempts, json.loads(claim.worker_ids)) == (
                row.epoch, row.attempts, row.workers,
            )  # fmt: skip
        return multiple(*claims)

    @rule(claim=claims, worker=st.sampled_from(WORKERS))
    def renew(self, claim: Claim, worker: str) -> None:
        renewed = self._run(self._store.renew([claim], worker_id=worker, lease_seconds=300))

        row = self._granted(claim, "RUNNING")
        may = row is not None and row.holder == worker
        assert list(renewed) == ([claim.id] if may else [])
        if row and may:
            row.is_expired = False

    @rule(claim=claims, ending=st.sampled_from(sorted(ENDINGS)), taken=st.booleans())
    def settle(self, claim: Claim, ending: str, taken: bool) -> None:
        takes_row_away = taken and ending in ("READY", "FAILED")
        landed = self._settle(claim, ENDINGS[ending], goes_back=ending == "READY", takes_row_away=takes_row_away)

        row = self._granted(claim, "RUNNING", "LOST")
        assert landed is (row is not None)
        if row:
            row.let_go(ending, epochs=int(takes_row_away))

    @rule(claim=claims)
    def snooze(self, claim: Claim) -> None:
        landed = self._settle(claim, Settlement.snooze(0), goes_back=True)

        row = self._granted(claim, "RUNNING")
        assert landed is (row is not None)
        if row:
            row.refund()
            row.let_go("READY", epochs=1)

    def _settle(self, claim: Claim, settlement: Settlement, *, goes_back: bool, takes_row_away: bool = False) -> bool:
        now = datetime.now(UTC)
        run_after = now if goes_back else None
        outcome = Outcome(claim.id, claim.lease_epoch, settlement, "[]", run_after, now, takes_row_away)
        return bool(self._run(self._store.settle([outcome])))

    @rule(claim=claims, worker=st.sampled_from(WORKERS))
    def hand_back(self, claim: Claim, worker: str) -> None:
        landed = self._run(self._store.release([claim], worker_id=worker))

        row = self._granted(claim, "RUNNING")
        may = row is not None and row.holder == worker
        assert list(landed) == ([claim.id] if may else [])
        if row and may:
            row.refund()
            row.let_go("READY", epochs=1)

    @rule(worker=st.sampled_from(WORKERS))
    def look_up(self, worker: str) -> None:
        held = {claim.id for claim in self._run(self._store.held(worker))}

        assert held == {id for id, row in self._rows.items() if row.holder == worker and not row.is_expired}

    @rule(task_id=tasks)
    def expire(self, task_id: UUID) -> None:
        row = self._rows[task_id]
        assert self._run(self._ox.actions.expire_lease(task_id)) is (row.status == "RUNNING")
        row.is_expired = row.status == "RUNNING"

    @rule()
    def reap(self) -> None:
        reaped = self._run(self._ox.reap())

        expired = {id: row for id, row in self._rows.items() if row.is_expired}
        for row in expired.values():
            has_attempts_left = row.attempts < row.max_attempts
            row.let_go("READY" if has_attempts_left else "LOST", epochs=int(has_attempts_left))
        assert set(reaped.requeued) == {id for id, row in expired.items() if row.status == "READY"}
        assert set(reaped.lost) == {id for id, row in expired.items() if row.status == "LOST"}

    @rule(task_id=tasks)
    def retry(self, task_id: UUID) -> None:
        row = self._rows[task_id]
        done = self._run(self._ox.actions.retry(task_id))
        assert done is (row.status in ("FAILED", "LOST"))
        if done:
            row.max_attempts = row.attempts + 1
            row.let_go("READY", epochs=1)

    @rule(task_id=tasks)
    def discard(self, task_id: UUID) -> None:
        row = self._rows[task_id]
        done = self._run(self._ox.actions.discard(task_id))
        assert done is (row.status in ("READY", "FAILED", "LOST"))
        if done:
            row.let_go("DISCARDED")

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        columns = "status, lease_epoch, attempts, max_attempts, locked_by, worker_ids"
        for task_id, row in self._rows.items():
            *found, workers = self._competitor.row(task_id, columns)
            assert found == [row.status, row.epoch, row.attempts, row.max_attempts, row.holder]
            assert (workers if isinstance(workers, list) else json.loads(workers)) == row.workers


@pytest.mark.timeout(rounds(small=120, full=3600))
def test_leases_are_what_the_model_says(migrated_url: str):
    class AtThisDatabase(Leases):
        url = migrated_url

    run_state_machine_as_test(
        AtThisDatabase,
        settings=settings(
            max_examples=rounds(small=15, full=500),
            stateful_step_count=rounds(small=30, full=60),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
