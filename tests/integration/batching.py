"""Tasks for batches and their callbacks, and what is seen of batches from outside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async import Batch, BatchProgress, Oxpull, Task
from tests.integration.competitor import Competitor

BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"


class Tasks:
    """The tasks of one Oxpull."""

    def __init__(self, ox: Oxpull) -> None:
        @ox.task
        async def work(number: int = 0) -> int:
            return number

        @ox.task(max_attempts=1)
        async def failing() -> None:
            raise ValueError("as always")

        @ox.task(unique=True)
        async def single(name: str) -> str:
            return name

        @ox.task(priority=5, queue_name="q2")
        async def done(*args: Any, **kwargs: Any) -> None:
            return None

        @ox.task
        async def cheer(*args: Any, **kwargs: Any) -> None:
            return None

        self.work: Task[..., Any] = work
        self.failing: Task[..., Any] = failing
        self.single: Task[..., Any] = single
        self.done: Task[..., Any] = done
        self.cheer: Task[..., Any] = cheer


class Watched:
    """What another client sees of batches."""

    def __init__(self, competitor: Competitor, tasks: Tasks) -> None:
        self._competitor = competitor
        self._tasks = tasks

    def row(self, batch: Batch | UUID, *columns: str) -> tuple[Any, ...]:
        """Columns of the batch's row."""
        batch_id = batch if isinstance(batch, UUID) else batch.id
        (row,) = self._competitor.rows(f"SELECT {', '.join(columns)} FROM {BATCHES} WHERE id = ?", batch_id)
        return row

    def state(self, batch: Batch) -> tuple[Any, ...]:
        """Status, total and failed count."""
        return self.row(batch, "status", "total_count", "failed_count")

    def write(self, batch: Batch, **columns: Any) -> None:
        """Write columns of the batch's row."""
        assignments = ", ".join(f"{name} = ?" for name in columns)
        self._competitor.run(f"UPDATE {BATCHES} SET {assignments} WHERE id = ?", *columns.values(), batch.id)

    def count(self) -> int:
        """How many batches there are."""
        return int(self._competitor.rows(f"SELECT COUNT(*) FROM {BATCHES}")[0][0])

    def members(self, batch: Batch) -> set[UUID]:
        """The members' task ids."""
        rows = self._competitor.rows(f"SELECT task_id FROM {MEMBERS} WHERE batch_id = ?", batch.id)
        return {UUID(str(row[0])) for row in rows}

    def callbacks(self) -> list[str]:
        """Which callbacks have been enqueued, in alphabetical order."""
        paths = {self._tasks.done.path: "done", self._tasks.cheer.path: "cheer"}
        rows = self._competitor.rows("SELECT task_path FROM django_ox_oxtask")
        return sorted(paths[path] for (path,) in rows if path in paths)

    def settle(self, ids: Sequence[UUID], *statuses: str | None) -> None:
        """Give the task rows these statuses; None deletes the row."""
        for task_id, status in zip(ids, statuses, strict=True):
            if status is None:
                self._competitor.delete_task(task_id)
            elif status != "READY":
                self._competitor.set_task(task_id, status=status, finished_at=datetime.now(UTC))


def counts(progress: BatchProgress) -> tuple[int, int, int, int]:
    return progress.total, progress.pending, progress.succeeded, progress.failed
