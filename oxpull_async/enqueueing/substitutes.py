"""What a test puts in place of the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from oxpull_async.enqueueing.requests import Request
from oxpull_async.ports import TaskRow
from oxpull_async.results import EnqueueResult
from oxpull_async.tasks import AnyTask


class Recipient(Protocol):
    """Takes checked requests instead of a database."""

    async def take(self, task: AnyTask, requests: Sequence[Request]) -> list[EnqueueResult]:
        """One result for each request, in order."""
        ...

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        """The row of a request that it took."""
        ...


@dataclass
class Substitutes:
    """Those of one Oxpull; outside of tests there are none."""

    recipient: Recipient | None = None
    database: str | None = None
    """Where to connect instead, making the tables there."""
