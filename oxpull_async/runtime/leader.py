"""Who does a job that needn't be done by everybody. Nobody depends on it: the others do it too, only less often."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import uniform
from typing import Final

from oxpull_async.ports import Store

LEASE_SECONDS: Final = 10.0
_RENEWALS: Final = 2.5
"""Within one lease."""
_SHORTEST_SECONDS: Final = 0.5


class Leader:
    """A role in the database that is ours for a lease at a time; all who want it say the same length."""

    def __init__(
        self,
        store: Callable[[], Store],
        role: Callable[[], str],
        holder: Callable[[], str],
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._lease_seconds = lease_seconds
        self._store = store
        self._role = role
        self._holder = holder
        self._held: str | None = None
        self._leads_until = 0.0
        self.next_attempt: float = 0.0
        """Monotonic time of the next try to take or keep the role."""

    @property
    def leads(self) -> bool:
        """Whether the role is ours now."""
        return time.monotonic() < self._leads_until

    async def attend(self) -> bool:
        """Take or keep the role when it's time to; returns whether it's ours."""
        began = time.monotonic()
        if began >= self.next_attempt:
            role = self._role()
            leadership = await self._store().batches.lead(
                role, holder=self._holder(), lease_seconds=self._lease_seconds
            )
            if leadership.is_ours:
                self._held, self._leads_until = role, began + self._lease_seconds
                self.next_attempt = began + self._lease_seconds / _RENEWALS
            else:
                self._leads_until = 0.0
                self.next_attempt = began + max(leadership.seconds, _SHORTEST_SECONDS) + uniform(0, 1)
        return self.leads

    async def stand_down(self) -> None:
        """Let others have the role at once."""
        role, self._held = self._held, None
        self._leads_until = self.next_attempt = 0.0
        if role is not None:
            await self._store().batches.stand_down(role, holder=self._holder())
