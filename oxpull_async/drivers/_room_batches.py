"""What a dialect's room must offer for batches: ``batches.py`` of a room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from oxpull_async.core.batches import Ending, Tally
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.ports import NewTask
from oxpull_async.ports_batches import (
    BatchClosed,
    BatchCount,
    BatchRow,
    Leadership,
    MemberRow,
    NewBatch,
    Scan,
    SealedBatch,
)


class BatchProcedures(Protocol):
    """The ports say what each is for; here is said in what transaction it runs, where that isn't a reading one."""

    def create(self, batch: NewBatch) -> Procedure[None]: ...

    def get(self, batch_id: UUID) -> Procedure[BatchRow | None]: ...

    def newest(self, status: str, limit: int) -> Procedure[list[BatchRow]]: ...

    def count(self, status: str, limit: int) -> Procedure[BatchCount]: ...

    def claim(self, batch_id: UUID, wait_seconds: float) -> Procedure[BatchClosed | None]:
        """Within a transaction of our own: nobody else adds or seals until it ends."""
        ...

    def add_tasks(
        self, batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
    ) -> Procedure[BatchClosed | None]:
        """Run by ``write``."""
        ...

    def add_tasks_inside(
        self, batch_id: UUID, tasks: Sequence[NewTask], added_at: datetime, wait_seconds: float | None
    ) -> Procedure[BatchClosed | None]:
        """Within a transaction, a caller's too. A batch that is closed leaves nothing written."""
        ...

    def add_members(
        self, batch_id: UUID, task_ids: Sequence[UUID], added_at: datetime, wait_seconds: float | None
    ) -> Procedure[BatchClosed | frozenset[UUID]]:
        """Within a transaction, a caller's too."""
        ...

    def members_among(self, batch_id: UUID, task_ids: Sequence[UUID]) -> Procedure[dict[UUID, datetime]]: ...

    def seal(self, batch_id: UUID, now: datetime, wait_seconds: float | None) -> Procedure[BatchClosed | int | None]:
        """Within a transaction of our own."""
        ...

    def seal_inside(self, batch_id: UUID, now: datetime) -> Procedure[BatchClosed | int | None]:
        """Within a caller's transaction; None where it left the counting to the reconciler."""
        ...

    def count_members(self, batch_id: UUID) -> Procedure[int | None]:
        """Run by ``transact``."""
        ...

    def tally(self, batch_id: UUID, width: int | None) -> Procedure[Tally]: ...

    def tally_with_highest(self, batch_id: UUID, width: int | None) -> Procedure[tuple[Tally, UUID | None]]: ...

    def highest_pending(self, batch_id: UUID) -> Procedure[UUID | None]: ...

    def members(
        self, batch_id: UUID, statuses: Sequence[str] | None, after: UUID | None, limit: int
    ) -> Procedure[list[MemberRow]]: ...

    def scan(self, batch_id: UUID, below: UUID | None, limit: int) -> Procedure[Scan]: ...

    def sealed(self, after: datetime, after_id: UUID, limit: int) -> Procedure[list[SealedBatch]]: ...

    def get_sealed(self, batch_id: UUID) -> Procedure[SealedBatch | None]: ...

    def pending(self, task_ids: Sequence[UUID]) -> Procedure[list[UUID]]: ...

    def mark_complete(self, batch_id: UUID, now: datetime) -> Procedure[tuple[bool, int | None]]:
        """Within a transaction, as ``write_ending``."""
        ...

    def write_ending(
        self, batch_id: UUID, ending: Ending, on_complete: UUID | None, on_success: UUID | None
    ) -> Procedure[None]: ...

    def lead(self, role: str, holder: str, lease_seconds: float) -> Procedure[Leadership]:
        """Run by ``write``."""
        ...

    def stand_down(self, role: str, holder: str) -> Procedure[None]:
        """Run by ``write``."""
        ...

    def last_led(self, role_prefix: str) -> Procedure[datetime | None]: ...

    def find_prunable(self, completed_before: datetime, limit: int) -> Procedure[list[UUID]]: ...

    def prune_members(self, batch_id: UUID, limit: int) -> Procedure[int]:
        """Within a transaction."""
        ...
