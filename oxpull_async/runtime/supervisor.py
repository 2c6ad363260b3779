"""Keeps background work in a task of its own, started and stopped by events.

An anyio cancel scope that is held open across a caller's ``yield`` breaks
where a host enters and leaves its lifespan in different tasks. So the scope
lives in one asyncio task that belongs to nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

import anyio

from oxpull_async.runtime.roster import Roster
from oxpull_async.telemetry import log

_CANCEL_SECONDS: Final = 2.0


class Member(Protocol):
    """Background work: it runs until it is told to stop."""

    async def run(self) -> Any:
        """Work until stopped."""
        ...

    def stop(self) -> None:
        """End soon; may be called before ``run`` has begun, and again."""
        ...

    @property
    def longest_stop(self) -> float:
        """Within how many seconds of ``stop`` it should have ended."""
        ...


class Supervisor:
    """Runs its members side by side. One that fails is logged, and brings down neither the others nor the host."""

    def __init__(self, members: Sequence[Member], roster: Roster | None = None) -> None:
        self._members = members
        self._roster = Roster() if roster is None else roster
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the members run in a task of their own from the next turn of the event loop on."""
        if self._members:
            self._task = asyncio.get_running_loop().create_task(self._own(), name="oxpull_async supervisor")

    async def stop(self) -> None:
        """Tell every member to stop, and cancel those that haven't ended in their time."""
        task, self._task = self._task, None
        if task is None:
            return
        for member in self._members:
            member.stop()
            self._roster.forget(member)
        done, _ = await asyncio.wait([task], timeout=self._members_longest_stop)
        if not done:
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=_CANCEL_SECONDS)
        if not done:
            log(logging.ERROR, "supervisor_stuck", f"background work did not end in {self.longest_stop:g} s")

    @property
    def longest_stop(self) -> float:
        """Within how many seconds ``stop`` has ended, whatever the members do."""
        return self._members_longest_stop + 2 * _CANCEL_SECONDS

    @property
    def _members_longest_stop(self) -> float:
        return max((member.longest_stop for member in self._members), default=0.0)

    async def _own(self) -> None:
        async with anyio.create_task_group() as group:
            for member in self._members:
                group.start_soon(self._run, member)

    async def _run(self, member: Member) -> None:
        try:
            with self._roster.present(member):
                await member.run()
        except Exception as error:  # must not reach the group, which would end all others
            self._roster.lose(member, error)
            log(logging.ERROR, "service_ended", f"{member!r} ended by an error: {error}", error=error)
