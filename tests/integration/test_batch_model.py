"""Whatever is done to batches in whatever order, rows are what a model of a few lines says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, invariant, rule, run_state_machine_as_test

from oxpull_async import Batch, BatchMemberExists, BatchNotFound, BatchSealed
from tests.integration.batching import BATCHES, MEMBERS, Tasks
from tests.integration.machines import DatabaseMachine
from tests.scale import rounds

PENDING = ("READY", "RUNNING", "WAITING")
RETRYABLE = ("FAILED", "LOST")
names = st.sampled_from(["a", "b", "c"])
outcomes = st.sampled_from(["SUCCESSFUL", "FAILED", "LOST", "DISCARDED", "RUNNING", "WAITING"])


@dataclass
class Modelled:
    """A batch, as far as the model goes."""

    batch: Batch
    status: str = "OPEN"
    members: list[UUID] = field(default_factory=list)
    total: int | None = None
    failed: int | None = None
    callbacks: list[str] = field(default_factory=list)


class Queue(DatabaseMachine):
    """Batches that are filled, sealed, worked off, meddled with, completed and pruned."""

    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self._tasks = Tasks(self._ox)
        self._model: list[Modelled] = []
        self._rows: dict[UUID, str] = {}
        self._locks: dict[str, UUID] = {}

    @initialize(target=batches)
    def begin(self) -> Any:
        return self.create()

    @rule(target=batches)
    def create(self) -> Modelled:
        made = self._ox.batches.create("model", on_complete=self._tasks.done, on_success=self._tasks.cheer)
        self._model.append(Modelled(self._run(_awaited(made))))
        return self._model[-1]

    # Filling

    @rule(chosen=batches)
    def add(self, chosen: Modelled) -> None:
        try:
            result = self._run(chosen.batch.add(self._tasks.work, 1))
        except BatchSealed:
            assert chosen.status in ("SEALED", "COMPLETE")
            return
        except BatchNotFound:
            assert chosen.status == "PRUNED"
            return
        assert chosen.status == "OPEN"
        self._rows[result.id] = "READY"
        chosen.members.append(result.id)

    @rule(chosen=batches, several=st.integers(0, 4))
    def add_many(self, chosen: Modelled, several: int) -> None:
        try:
            added = self._run(chosen.batch.add_many(self._tasks.work, [(number,) for number in range(several)]))
        except BatchSealed:
            assert chosen.status in ("SEALED", "COMPLETE")
            return
        except BatchNotFound:
            assert chosen.status == "PRUNED"
            return
        assert chosen.status == "OPEN" or not several
        self._rows |= {each.id: "READY" for each in added}
        chosen.members += [each.id for each in added]

    @rule(chosen=batches, name=names)
    def add_unique(self, chosen: Modelled, name: str) -> None:
        holder = self._holder(name)
        try:
            result = self._run(chosen.batch.add(self._tasks.single, name))
        except BatchSealed:
            assert chosen.status in ("SEALED", "COMPLETE")
            return
        except BatchNotFound:
            assert chosen.status == "PRUNED"
            return
        except BatchMemberExists as error:
            assert chosen.status == "OPEN"
            assert error.task_id == holder
            assert holder in chosen.members
            return
        assert chosen.status == "OPEN"
        assert result.created == (holder is None)
        if holder is None:
            self._rows[result.id] = "READY"
            self._locks[name] = result.id
        else:
            assert (result.id, holder in chosen.members) == (holder, False)
        chosen.members.append(result.id)

    def _holder(self, name: str) -> UUID | None:
        named = self._locks.get(name)
        return named if named is not None and self._rows.get(named) in ("READY", "RUNNING") else None

    @rule(chosen=batches)
    def seal(self, chosen: Modelled) -> None:
        try:
            total = self._run(chosen.batch.seal())
        except BatchSealed:
            assert chosen.status in ("SEALED", "COMPLETE")
            return
        except BatchNotFound:
            assert chosen.status == "PRUNED"
            return
        assert (chosen.status, total) == ("OPEN", len(chosen.members))
        chosen.status, chosen.total = "SEALED", total

    # Members' fates

    @rule(data=st.data(), status=outcomes)
    def settle(self, data: st.DataObject, status: str) -> None:
        """A worker's outcome, a straggler's, or a row that is taken up, as another program would write it."""
        if (task_id := self._any_row(data)) is not None and self._rows[task_id] != status:
            self._competitor.set_task(task_id, status=status)
            self._rows[task_id] = status

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        if (task_id := self._any_row(data)) is not None:
            assert self._run(self._ox.actions.retry(task_id)) == (self._rows[task_id] in RETRYABLE)
            if self._rows[task_id] in RETRYABLE:
                self._rows[task_id] = "READY"

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        if (task_id := self._any_row(data)) is not None:
            possible = self._rows[task_id] in ("READY", "WAITING", *RETRYABLE)
            assert self._run(self._ox.actions.discard(task_id)) == possible
            if possible:
                self._rows[task_id] = "DISCARDED"

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if (task_id := self._any_row(data)) is not None:
            self._competitor.delete_task(task_id)
            del self._rows[task_id]

    def _any_row(self, data: st.DataObject) -> UUID | None:
        return data.draw(st.sampled_from(sorted(self._rows))) if self._rows else None

    # Completing

    @rule()
    def reconcile(self) -> None:
        due = [each for each in self._model if each.status == "SEALED" and not self._pending(each)]
        assert self._run(self._ox.batches.reconcile()) == len(due)
        for each in due:
            statuses = [self._rows.get(task_id) for task_id in each.members]
            each.status, each.failed = "COMPLETE", statuses.count("FAILED")
            each.callbacks = ["done", "cheer"] if set(statuses) <= {"SUCCESSFUL"} else ["done"]

    @rule()
    def prune(self) -> None:
        complete = [each for each in self._model if each.status == "COMPLETE"]
        pruned = self._run(self._ox.prune(older_than=3600, batches_older_than=0))
        assert pruned.batches == len(complete)
        for each in complete:
            each.status = "PRUNED"
        self._locks = {name: named for name, named in self._locks.items() if self._holder(name)}

    def _pending(self, modelled: Modelled) -> int:
        return sum(self._rows.get(task_id) in PENDING for task_id in modelled.members)

    @invariant()
    def rows_are_as_modelled(self) -> None:
        found = {
            UUID(str(batch_id)): row
            for batch_id, *row in self._competitor.rows(f"SELECT id, status, total_count, failed_count FROM {BATCHES}")
        }
        expected = {
            each.batch.id: [each.status, each.total, each.failed] for each in self._model if each.status != "PRUNED"
        }
        assert found == expected
        members = {
            (UUID(str(b)), UUID(str(t))) for b, t in self._competitor.rows(f"SELECT batch_id, task_id FROM {MEMBERS}")
        }
        assert members == {
            (each.batch.id, task_id) for each in self._model if each.status != "PRUNED" for task_id in each.members
        }

    @invariant()
    def callbacks_were_enqueued_once(self) -> None:
        paths = {self._tasks.done.path: "done", self._tasks.cheer.path: "cheer"}
        rows = self._competitor.rows("SELECT task_path FROM django_ox_oxtask")
        assert sorted(paths[path] for (path,) in rows if path in paths) == sorted(
            name for each in self._model for name in each.callbacks
        )

    @invariant()
    def progress_is_what_the_rows_say(self) -> None:
        for each in self._model[-3:]:
            if each.status == "PRUNED":
                continue
            progress = self._run(each.batch.progress())
            statuses = [self._rows.get(task_id) for task_id in each.members]
            assert (progress.total, progress.pending) == (len(each.members), self._pending(each))
            assert (progress.succeeded, progress.failed) == (statuses.count("SUCCESSFUL"), statuses.count("FAILED"))
            assert progress.total == progress.pending + progress.succeeded + progress.failed + progress.unattributed


async def _awaited(made: Any) -> Batch:
    batch: Batch = await made
    return batch


@pytest.mark.timeout(300)
def test_batches_are_what_the_model_says(migrated_url: str) -> None:
    class Here(Queue):
        url = migrated_url

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=rounds(small=12, full=200),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
