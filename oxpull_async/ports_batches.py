"""What a store can do about batches, operation by operation. The terms are those of ``ports``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias
from uuid import UUID

from oxpull_async.core.batches import Ending, Tally
from oxpull_async.ports import Attempt, NewTask, NewUnique, TaskRow


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be created as OPEN. A path is empty where there is no callback; the JSON columns are texts."""

    id: UUID
    name: str
    on_complete_path: str
    on_complete_args: str
    on_complete_kwargs: str
    on_success_path: str
    on_success_args: str
    on_success_kwargs: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as it is stored."""

    id: UUID
    name: str
    status: str
    total_count: int | None
    on_complete_path: str
    on_complete_args: str
    on_complete_kwargs: str
    on_success_path: str
    on_success_args: str
    on_success_kwargs: str
    failed_count: int | None
    callback_task_id: UUID | None
    success_task_id: UUID | None
    created_at: datetime
    sealed_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """What has to be known of a batch that waits for its members."""

    id: UUID
    on_complete_path: str
    on_success_path: str
    is_counted: bool
    """False where it was sealed within a transaction that couldn't count what others had committed."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BatchCount:
    """How many batches there are of one status, and since when there is the oldest."""

    number: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member: its task row, None where that is gone."""

    task_id: UUID
    added_at: datetime
    task: TaskRow | None


@dataclass(frozen=True, slots=True)
class Scan:
    """One page of members, read from the highest id down: the first pending one, and how far down it went."""

    pending: UUID | None
    lowest: UUID | None
    """None: there were no further members."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Members to add: new task rows, or unique ones, whose keys differ."""

    batch_id: UUID
    tasks: Sequence[NewTask]
    uniques: Sequence[NewUnique]
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Added:
    """They are members now.

    One answer for each unique task: ``Inserted``, or ``Held`` by the pending
    row that has become the member in its place. ``repeated`` are task ids
    that were members before.
    """

    answers: Sequence[Attempt] = ()
    repeated: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchClosed:
    """The batch takes no members (or can't be sealed): its status, None where there is no such batch."""

    status: str | None


@dataclass(frozen=True, slots=True)
class SealedNow:
    """The batch is sealed. ``total`` None: left to the reconciler, since a count would not have been current."""

    total: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """A batch to be completed, with the task rows of its callbacks."""

    batch_id: UUID
    on_complete: NewTask | None
    on_success: NewTask | None
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class Completed:
    """The batch is COMPLETE, and its callbacks are enqueued: ``on_success`` only if the ending is one."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class StillPending:
    """Nothing was changed, for this member is pending."""

    task_id: UUID


@dataclass(frozen=True, slots=True)
class NotSealed:
    """Nothing was changed, for the batch isn't SEALED: another reconciler has completed it, or it's gone."""


CompletionAnswer: TypeAlias = Completed | StillPending | NotSealed


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who has a role now: we, or another for so many seconds more."""

    is_ours: bool
    seconds: float


class BatchReads(Protocol):
    """What can be asked of batches, in the store's own connections or within a caller's transaction."""

    async def get(self, batch_id: UUID) -> BatchRow | None:
        """The batch's row."""
        ...

    async def tally(self, batch_id: UUID, *, width: int | None) -> Tally:
        """Count the members by status, in one statement. ``width``: how many there are, if that's known."""
        ...

    async def members(
        self, batch_id: UUID, *, statuses: Sequence[str] | None, after: UUID | None, limit: int
    ) -> Sequence[MemberRow]:
        """A page of members in the order of their ids, and of them those with these statuses (None: all).

        The page's last member is among them whatever its status, so that the
        next page can follow it; no rows say that there is no further page.
        """
        ...

    async def scan(self, batch_id: UUID, *, below: UUID | None, limit: int) -> Scan:
        """Look for a pending member among the next ``limit`` below this id (None: from the highest)."""
        ...

    async def highest_pending(self, batch_id: UUID) -> UUID | None:
        """The highest pending member, looked for among all: for batches too wide to look through by pages."""
        ...

    async def task(self, task_id: UUID) -> TaskRow | None:
        """A task row."""
        ...


class BatchStore(BatchReads, Protocol):
    """Batches in transactions of the store's own."""

    async def create(self, batch: NewBatch) -> None:
        """Insert an OPEN batch. Raises: UniqueViolation where the id exists already."""
        ...

    async def newest(self, status: str, *, limit: int) -> Sequence[BatchRow]:
        """Batches of this status, the newest first."""
        ...

    async def count(self, status: str, *, limit: int) -> BatchCount:
        """How many batches of this status there are, up to ``limit``, and when the oldest of them was created."""
        ...

    async def add(
        self, addition: Addition, *, wait_seconds: float, passes: int, unheard: list[Added] | None = None
    ) -> Added | BatchClosed:
        """Task rows and memberships together, all or nothing, while the batch is held OPEN.

        An ``Unseen`` among the answers means that ``passes`` were not enough:
        nothing was written. ``unheard`` is for tries of the same addition: to
        it goes what one would have answered whose reply was lost, and what one
        of these has committed isn't done again, but answered.
        Raises: UniqueViolation where a task's id exists.
        """
        ...

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        """OPEN to SEALED, with the number of members. Waits for additions that are under way."""
        ...

    async def sealed(self, *, after: SealedBatch | None, limit: int) -> Sequence[SealedBatch]:
        """A page of SEALED batches, the oldest first."""
        ...

    async def get_sealed(self, batch_id: UUID) -> SealedBatch | None:
        """The batch, if it's SEALED."""
        ...

    async def pending(self, task_ids: Sequence[UUID]) -> Sequence[UUID]:
        """Those of the task rows that are there, with a status that isn't settled."""
        ...

    async def count_members(self, batch_id: UUID) -> None:
        """Write the number of members of a SEALED batch that has none yet."""
        ...

    async def complete(self, completion: Completion) -> CompletionAnswer:
        """SEALED to COMPLETE by compare-and-set, with the callbacks in the same transaction.

        Members are counted anew under the batch's row lock: that count decides.
        """
        ...

    async def lead(self, role: str, *, holder: str, lease_seconds: float) -> Leadership:
        """Take or keep a role, unless another has it. By the database's clock.

        An expiry further ahead than the lease is long counts as expired, for clocks are set back.
        """
        ...

    async def stand_down(self, role: str, *, holder: str) -> None:
        """Give a role up, if it's still this holder's."""
        ...

    async def last_led(self, role_prefix: str) -> datetime | None:
        """Until when such a role was last taken."""
        ...

    async def find_prunable(self, *, completed_before: datetime, limit: int) -> Sequence[UUID]:
        """COMPLETE batches that were completed before this, the oldest first."""
        ...

    async def prune_members(self, batch_id: UUID, *, limit: int) -> int:
        """Delete up to ``limit`` members of a COMPLETE batch; with the last of them the batch.

        Returns how many; fewer than ``limit`` say that the batch is gone.
        """
        ...


class JoinedBatchStore(BatchReads, Protocol):
    """Batches within a caller's transaction. Each operation is a savepoint."""

    async def create(self, batch: NewBatch) -> None:
        """Insert an OPEN batch."""
        ...

    async def add_tasks(self, batch_id: UUID, tasks: Sequence[NewTask], *, added_at: datetime) -> BatchClosed | None:
        """Task rows and their memberships."""
        ...

    async def add_members(
        self, batch_id: UUID, task_ids: Sequence[UUID], *, added_at: datetime
    ) -> BatchClosed | frozenset[UUID]:
        """Memberships of task rows that exist; returns the ids that were members before."""
        ...

    async def seal(self, batch_id: UUID, *, now: datetime) -> SealedNow | BatchClosed:
        """As in a transaction of the store's own, but for the count: see ``SealedNow``.

        Raises: SerializationFailure where others have added members since the transaction's snapshot.
        """
        ...
