"""Leases: who may run a row until when, and what becomes of it after that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from oxpull_async.core.failures import abandoned_record

REAP_LIMIT: Final = 100
"""How many rows one reaping pass takes at most."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A RUNNING row whose lease is over. ``errors`` is JSON text."""

    id: UUID
    lease_epoch: int
    locked_by: str | None
    attempts: int
    max_attempts: int
    errors: str

    @property
    def has_attempts_left(self) -> bool:
        """Whether the row goes back to the queue; otherwise it is LOST."""
        return self.attempts < self.max_attempts


def with_abandoned_record(row: Expired) -> str:
    """The row's errors as JSON text, and one more that tells of the dead worker."""
    return json.dumps([*json.loads(row.errors), abandoned_record(row.locked_by)])


def renewal_interval(lease_seconds: float) -> float:
    """How often a lease is renewed, in seconds: three times within its length."""
    return max(lease_seconds / 3, 0.1)


def reap_interval(lease_seconds: float) -> float:
    """How often expired leases are looked for, in seconds."""
    return min(30.0, max(lease_seconds / 2, 1.0))
