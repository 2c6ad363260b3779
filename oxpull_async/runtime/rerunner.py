"""Enqueues the reruns whose task has ended where nobody saw to them: in another program's worker, or by the reaper."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import uniform
from typing import Final, Protocol

from oxpull_async._contention import retrying
from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Store
from oxpull_async.runtime.hints import ReadyHints
from oxpull_async.runtime.service import Service
from oxpull_async.tasks import AnyTask

_CHUNK: Final = 100
_OFTEN_SECONDS: Final = (1.0, 2.0)
_SELDOM_SECONDS: Final = (10.0, 15.0)
"""Where no task here is ever run again, it's for other processes to look often."""


class RerunHost(Protocol):
    """What this needs of an ``Oxpull``."""

    @property
    def store(self) -> Store:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that can run here, by path."""
        ...

    @property
    def ready_hints(self) -> ReadyHints:
        """Tells workers that a row was enqueued."""
        ...


class Rerunner:
    """One pass per turn; a full one is followed by the next at once."""

    def __init__(self, host: RerunHost) -> None:
        self._host = host

    def service(self) -> Service:
        """What takes the turns."""
        return Service("rerunner", self.turn)

    async def turn(self) -> float:
        """Enqueue what is due; returns the pause before the next pass."""
        _, is_full = await self._pass()
        if is_full:
            return 0.0
        return uniform(*(_OFTEN_SECONDS if any(map(_runs_again, self._host.tasks.values())) else _SELDOM_SECONDS))

    async def sweep(self) -> int:
        """Enqueue all that is due; returns how many tasks were enqueued, or took a rerun's arguments."""
        total = 0
        while True:
            started, is_full = await self._pass()
            total += started
            if not is_full:
                return total

    async def _pass(self) -> tuple[int, bool]:
        """How many were started, and whether there may be more."""
        keys = self._host.store.keys
        due = await retrying(partial(keys.due_reruns, limit=_CHUNK))
        started, hindered = 0, None
        for key in due:
            try:
                started += await retrying(partial(keys.start_rerun, key))
            except StoreError as error:  # the others needn't wait for this one
                hindered = error
        if started:
            self._host.ready_hints.enqueued()
        if hindered is not None:
            raise hindered
        return started, len(due) == _CHUNK and started > 0


def _runs_again(task: AnyTask) -> bool:
    return task.options.unique is not None and task.options.unique.on_duplicate == "rerun"
