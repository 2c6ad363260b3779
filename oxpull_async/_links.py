"""What a store does over connections apart from its pool: leases are renewed, and wake-ups are heard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from oxpull_async.ports import Claim, TaskRow
    from oxpull_async.ports_exclusive import HeldPlace, Renewal


class LeaseKeeper(Protocol):
    """Renews leases over a connection of its own, in whichever thread and event loop it was opened."""

    async def renew(self, claims: Sequence[Claim], *, worker_id: str, lease_seconds: float) -> Sequence[UUID]:
        """Extend the leases still held by this worker at their epochs; returns the ids extended."""

    async def renew_places(self, places: Sequence[HeldPlace]) -> Renewal:
        """Extend the leases of exclusive keys, by owner and token."""

    async def get_tasks(self, task_ids: Sequence[UUID]) -> Sequence[TaskRow]:
        """Those of the task rows that exist, in any order."""


class Listener(Protocol):
    """Hears what is told over ``notify``."""

    async def ping(self) -> None:
        """Whether it still would. Raises: ConnectionLost."""


class Links(Protocol):
    """A part of ``ports.Store``."""

    def lease_keeper(self) -> AbstractAsyncContextManager[LeaseKeeper]:
        """Connect apart from everything else, so that renewals depend neither on the pool nor on the event loop."""

    def listener(self, heard: Callable[[str], None], lost: Callable[[], None]) -> AbstractAsyncContextManager[Listener]:
        """Connect, and call ``heard`` with every word told, ``lost`` when the connection is gone.

        Only where the capabilities name notifications. Words told before it's open are never heard.
        """

    async def notify(self, word: str) -> None:
        """Tell everybody who listens at these tables; needn't arrive. Only as above. ``word``: letters and digits."""
