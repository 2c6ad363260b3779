"""What a store can be asked about its rows as a whole: counts and lists for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class PendingCount:
    """READY or RUNNING rows of one queue and task path. ``due``: how many of the READY ones may be claimed now."""

    queue_name: str
    task_path: str
    status: str
    count: int
    due: int
    oldest_due_at: datetime | None
    last_attempted_at: datetime | None


@dataclass(frozen=True, slots=True)
class UndecidedCount:
    """WAITING, FAILED or LOST rows of one queue."""

    queue_name: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class FinishedCount:
    """Rows of one queue and status among those that were settled last; ``recent`` ones since a given instant."""

    queue_name: str
    status: str
    count: int
    recent: int
    earliest_finished_at: datetime
    last_attempted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows there are: all pending ones, and of the others up to a limit."""

    pending: Sequence[PendingCount]
    undecided: Sequence[UndecidedCount]
    finished: Sequence[FinishedCount]


@dataclass(frozen=True, slots=True)
class LockRow:
    """A unique lock, with its holder's status; that is None where the row is gone."""

    key: str
    task_id: UUID | None
    task_path: str
    queue_name: str
    created_at: datetime
    status: str | None


class Inspection(Protocol):
    """The part of a store that reads for operators."""

    async def probe(self) -> None:
        """Return if the server answers and has the tables. Raises: StoreError, WrongDatabase without them."""
        ...

    async def missing_steps(self) -> Sequence[str]:
        """The steps of the schema that aren't listed as applied."""
        ...

    async def count(self, *, now: datetime, since: datetime, limit: int) -> Counts:
        """Count rows: READY and RUNNING ones all; up to ``limit`` each of WAITING, FAILED and LOST; the ``limit``
        that were settled last, and among these the ones since ``since``.
        """
        ...

    async def list_locks(self, *, after: str, limit: int) -> Sequence[LockRow]:
        """Up to ``limit`` unique locks in key order, those behind the key ``after``."""
        ...
