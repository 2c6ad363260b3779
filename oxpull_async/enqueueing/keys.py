"""``ox.unique``: who holds a key, and what an operator may do about it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from oxpull_async._contention import retrying
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.core.unique_options import Unique
from oxpull_async.core.uniqueness import is_pending
from oxpull_async.enqueueing.bound import BoundHost
from oxpull_async.enqueueing.foreign import AnyEnqueueable, Enqueueable, as_task
from oxpull_async.enqueueing.requests import make_request
from oxpull_async.ports import TaskRow
from oxpull_async.ports_keys import KeyRow
from oxpull_async.results import TaskResult, task_result
from oxpull_async.tasks import Call, P
from oxpull_async.telemetry import log

HeldBecause: TypeAlias = Literal["queued", "running", "window"]


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Why an enqueue would find its key held.

    ``because``: the task is ``"queued"`` (READY) or ``"running"``, or has
    ended within its ``"window"``. ``since`` is when the key was taken,
    ``held_until`` the end of its window. ``rerun_asked_at``: when the run that
    is to follow this one was asked for last, if one is to follow.
    """

    key: str
    task: TaskResult
    since: datetime
    because: HeldBecause
    held_until: datetime | None
    rerun_asked_at: datetime | None


class UniqueKeys:
    """Looks at unique keys, and lets go of them."""

    def __init__(
        self,
        host: BoundHost,
        sweep: Callable[[], Awaitable[int]],
    ) -> None:
        self._host = host
        self._store = host.store
        self._sweep = sweep

    async def holder(self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> KeyHolder | None:
        """Who holds the key of this call, since when and why; None if an enqueue would be a new one.

        Raises: InvalidArguments, as the enqueue would.
        """
        key, unique = self._key(task, Call(args, kwargs))
        found, row = await self._read(key, unique)
        if found is None or row is None or (because := self._because(unique, row, found)) is None:
            return None
        rerun = None
        if unique.on_duplicate == "rerun":
            rerun = await retrying(lambda: self._store().keys.read_rerun(key))
        return KeyHolder(
            key=key,
            task=task_result(row, self._host.reader),
            since=found.created_at,
            because=because,
            held_until=found.held_until,
            rerun_asked_at=None if rerun is None else rerun.task.enqueued_at,
        )

    async def release(self, task: AnyEnqueueable, /, *args: Any, reason: str, **kwargs: Any) -> bool:
        """Let go of the key of this call, whatever its holder does: the next enqueue makes a new row beside it.

        The holder itself is left alone; to be rid of it as well, discard or
        cancel it instead, which frees its key. ``reason`` is logged. True if
        there was something to let go of.
        """
        key, unique = self._key(task, Call(args, kwargs))
        found, row = await self._read(key, unique)
        if found is None:
            return False
        hold = unique.terms is not None
        released = await retrying(lambda: self._store().keys.release(key, found.task_id, hold=hold))
        if released:
            log(
                logging.WARNING,
                "unique_key_released",
                f"the unique key of {as_task(task).path} was released by hand: {reason}",
                task_path=as_task(task).path,
                key=key,
                reason=reason,
                holder_id=None if found.task_id is None else str(found.task_id),
                holder_status=None if row is None else row.status,
            )
        return released

    async def sweep(self) -> int:
        """One pass over reruns: enqueue those whose task has ended, wherever it has; returns how many.

        Workers do so by themselves.
        """
        return await self._sweep()

    def _key(self, task: AnyEnqueueable, call: Call) -> tuple[str, Unique]:
        adopted = as_task(task)
        unique = self._host.uniqueness(adopted, True)
        assert unique is not None
        request = make_request(adopted, call, settings=self._host.settings, unique=unique, now=self._host.clock.now())
        return request.unique.key, unique

    async def _read(self, key: str, unique: Unique) -> tuple[KeyRow | None, TaskRow | None]:
        store, hold = self._store(), unique.terms is not None
        found = await retrying(lambda: store.keys.read_key(key, hold=hold))
        if found is None or found.task_id is None:
            return found, None
        task_id = found.task_id
        return found, await retrying(lambda: store.get_task(task_id))

    def _because(self, unique: Unique, row: TaskRow, found: KeyRow) -> HeldBecause | None:
        if unique.terms is None:
            is_held = is_pending(row.status)
        else:
            is_held = unique.terms.is_held(row.status, found.held_until, self._host.clock.now())
        if not is_held:
            return None
        if row.status == TaskStatus.READY:
            return "queued"
        if row.status == TaskStatus.RUNNING and (unique.terms is None or unique.terms.held_while == "pending"):
            return "running"
        return "window"
