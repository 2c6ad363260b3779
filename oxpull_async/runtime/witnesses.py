"""Which batches wait, and for whom: one witness per sealed batch, a member that is known to be pending.

While its witness is pending a batch can't complete, so an unfinished one costs
one row read per pass, however wide it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from oxpull_async.ports_batches import SealedBatch


@dataclass(eq=False, slots=True)
class Waiting:
    """A sealed batch, and what is known of its members."""

    batch: SealedBatch
    witness: UUID | None = None
    cursor: UUID | None = None
    """Members above it were settled when they were looked at: it only moves down, for membership is frozen."""
    not_before: float = 0.0
    """Monotonic time before which it isn't tried again."""
    failures: int = 0
    """How often completing it has failed."""
    was_tried: bool = False
    """Whether a try to complete it has met a pending member: from then on one is looked for before all are counted."""
    reopened: int = 0
    """How often a member that had been settled was pending again when it was to be completed."""
    complaint: str | None = None
    """What kept it from completing, although no member held it open."""


class Witnesses:
    """The sealed batches that this process watches."""

    def __init__(self) -> None:
        self._waiting: dict[UUID, Waiting] = {}
        self._by_task: dict[UUID, set[UUID]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def tasks(self) -> list[UUID]:
        """All witnesses."""
        return list(self._by_task)

    @property
    def without(self) -> list[Waiting]:
        """Batches for which a witness is to be found, or to be completed."""
        return [waiting for waiting in self._waiting.values() if waiting.witness is None]

    @property
    def all(self) -> list[Waiting]:
        """All of them."""
        return list(self._waiting.values())

    def keep(self, batch: SealedBatch) -> Waiting:
        """Watch this batch from now on; what is known of it stays."""
        waiting = self._waiting.get(batch.id)
        if waiting is None:
            waiting = self._waiting[batch.id] = Waiting(batch)
        waiting.batch = batch
        return waiting

    def forget(self, batch_id: UUID) -> None:
        """It's complete, or gone."""
        waiting = self._waiting.pop(batch_id, None)
        if waiting is not None:
            self._unlist(waiting)

    def forget_all_but(self, batch_ids: Collection[UUID]) -> None:
        """They are no longer sealed, or not for this process to complete."""
        for batch_id in self._waiting.keys() - set(batch_ids):
            self.forget(batch_id)

    def set(self, waiting: Waiting, task_id: UUID) -> None:
        """This member was pending when it was looked at."""
        self._unlist(waiting)
        waiting.witness = waiting.cursor = task_id
        waiting.complaint = None
        if waiting.batch.id in self._waiting:
            self._by_task.setdefault(task_id, set()).add(waiting.batch.id)

    def settled(self, task_ids: Iterable[UUID]) -> bool:
        """These task rows aren't pending any more; True if one of them was a witness."""
        found = False
        for task_id in task_ids:
            for batch_id in self._by_task.pop(task_id, ()):
                self._waiting[batch_id].witness = None
                found = True
        return found

    def _unlist(self, waiting: Waiting) -> None:
        task_id, waiting.witness = waiting.witness, None
        if task_id is None:
            return
        batches = self._by_task.get(task_id, set())
        batches.discard(waiting.batch.id)
        if not batches:
            self._by_task.pop(task_id, None)
