"""What callers hear of batches: how far one is, who belongs to it, and why it isn't complete."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, computed_field

from oxpull_async.core.batches import Tally
from oxpull_async.core.statuses import BatchStatus, TaskStatus
from oxpull_async.results import TaskResult


class BatchProgress(BaseModel):
    """How far a batch is, read from its members' rows.

    Until the batch is sealed ``total`` is the number of members so far, then
    the number at the seal. Rows may still change after COMPLETE: a straggler
    or an operator's retry shows here, and starts no callback again.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    total: int
    pending: int
    succeeded: int
    failed: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unattributed(self) -> int:
        """Members that are settled and yet neither succeeded nor failed: LOST, DISCARDED, or their rows gone."""
        return max(self.total - self.pending - self.succeeded - self.failed, 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def finished(self) -> int:
        """Members that aren't pending."""
        return self.total - self.pending

    @property
    def pruned(self) -> int:
        """Deprecated: read ``unattributed``."""
        warnings.warn("BatchProgress.pruned is deprecated: read unattributed", DeprecationWarning, stacklevel=2)
        return self.unattributed


class BatchMember(BaseModel):
    """A member of a batch. ``task`` is its row, None where that is gone."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    task_id: UUID
    added_at: datetime
    task: TaskResult | None

    @property
    def status(self) -> TaskStatus | None:
        """The row's status."""
        return None if self.task is None else self.task.status


class WaitingMember(BaseModel):
    """A pending member, and what it waits for, in words."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    task_id: UUID
    task_path: str
    status: str
    waits_for: str


class BatchExplanation(BaseModel):
    """Why a batch is where it is. ``waiting`` are some of the members that hold it open."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    status: BatchStatus
    reason: str
    progress: BatchProgress
    waiting: list[WaitingMember]

    def __str__(self) -> str:
        lines = [f"{self.status}: {self.reason}"]
        lines += [
            f"  {member.task_id} {member.task_path} {member.status}: {member.waits_for}" for member in self.waiting
        ]
        return "\n".join(lines)


class BatchInfo(BaseModel):
    """A batch as it was read, without its members."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: UUID
    name: str
    status: BatchStatus
    created_at: datetime
    sealed_at: datetime | None
    completed_at: datetime | None


def progress_of(total_count: int | None, tally: Tally) -> BatchProgress:
    """The progress that these counts make."""
    total = tally.members if total_count is None else total_count
    return BatchProgress(total=total, pending=tally.pending, succeeded=tally.succeeded, failed=tally.failed)
