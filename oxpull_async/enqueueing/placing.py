"""Enqueue by a ``Unique`` that says more than which calls are the same: within a transaction, whoever's it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, assert_never

from oxpull_async.core.unique_options import Unique
from oxpull_async.core.uniqueness import MAX_PASSES, Deed, capped_run_after, decide_deed
from oxpull_async.enqueueing.joined import Joining
from oxpull_async.enqueueing.registry import LOCKS, Holds, Registry
from oxpull_async.enqueueing.requests import Request
from oxpull_async.enqueueing.unique import row_of
from oxpull_async.exceptions import DeadlockDetected, DuplicateTask, LockNotAvailable, SerializationFailure
from oxpull_async.ports import Held, Store, TaskRow
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.ports_keys import Rerun
from oxpull_async.results import ResultSource, task_result

_REVISED: Final = "its holder was changing each time it was to be changed"


class Placing:
    """One call (of one task) under way. ``reruns`` are the keys whose holders will be followed by a rerun."""

    def __init__(
        self,
        store: Store,
        joined: JoinedStore,
        unique: Unique,
        source: ResultSource,
        *,
        now: datetime,
        wait_seconds: float | None,
    ) -> None:
        self._store = store
        self._joined = joined
        self._unique = unique
        self._source = source
        self._registry: Registry = LOCKS if unique.terms is None else Holds(unique.terms, now)
        self._wait_seconds = wait_seconds
        self.reruns: list[str] = []

    async def place(self, requests: Sequence[Request]) -> list[TaskRow | None]:
        """None for each new row, the holder's row for the others, as it is by now.

        A key's first call may create its row; what its repeats do is done in their order.
        Raises: DuplicateTask, UniqueEnqueueRace.
        """
        first: dict[str, Request] = {}
        for request in requests:
            first.setdefault(request.unique.key, request)
        holders = await self._decide([first[key] for key in sorted(first)])
        rows: list[TaskRow | None] = []
        for request in requests:
            key = request.unique.key
            holder = holders[key]
            if holder is None and first[key] is request:
                rows.append(None)
                continue
            found = await self._repeat(request, row_of(first[key].task) if holder is None else holder)
            if found is None:
                first[key] = request
            holders[key] = found
            rows.append(found)
        return rows

    async def _decide(self, requests: Sequence[Request]) -> dict[str, TaskRow | None]:
        """The holder of each key, None where the key is this call's by now."""
        uniques = [request.unique for request in requests]
        joining = Joining(self._store, self._joined, uniques, self._wait_seconds, self._registry)
        verdicts = await joining.decide()
        holders = {
            unique.key: verdict.row if isinstance(verdict, Held) else None
            for unique, verdict in zip(uniques, verdicts, strict=True)
        }
        new = [key for key, holder in holders.items() if holder is None]
        if new and self._unique.on_duplicate == "rerun":
            await self._joined.keys.drop_reruns(new)
        return holders

    async def _repeat(self, request: Request, holder: TaskRow) -> TaskRow | None:
        """Do to the holder what a duplicate does. None: it has ended meanwhile, and this call's row is the new one."""
        for _ in range(MAX_PASSES):
            try:
                changed = await self._do(request, holder)
            except (LockNotAvailable, DeadlockDetected, SerializationFailure) as error:
                raise await self._race(request, error) from error
            if changed is not None:
                return changed
            found = (await self._decide([request]))[request.unique.key]
            if found is None:
                return None
            holder = found
        raise await self._race(request, None)

    async def _do(self, request: Request, holder: TaskRow) -> TaskRow | None:
        """The holder as it is then; None if it isn't any more what it was seen to be."""
        keys, wait = self._joined.keys, self._wait_seconds
        deed = decide_deed(self._unique.on_duplicate, holder.status)
        match deed:
            case Deed.RETURN:
                return holder
            case Deed.RAISE:
                raise duplicate_error(holder, self._source)
            case Deed.MOVE:
                return await keys.move(holder, moved_to(request, holder, self._unique), wait_seconds=wait)
            case Deed.REPLACE:
                task = request.task
                return await keys.replace(holder, request.unique.key, task.args, task.kwargs, wait_seconds=wait)
            case Deed.RUN_AGAIN:
                key = request.unique.key
                await keys.ask_rerun(Rerun(key, holder.id, request.task), wait_seconds=wait)
                self.reruns.append(key)
                return holder
        assert_never(deed)

    async def _race(self, request: Request, error: Exception | None) -> Exception:
        joining = Joining(self._store, self._joined, [request.unique], self._wait_seconds, self._registry)
        if isinstance(error, LockNotAvailable):
            return await joining.race("lock_wait", "another transaction is changing its holder", "call")
        if isinstance(error, DeadlockDetected):
            return await joining.race("deadlock", "the database ended a deadlock over its holder", "call")
        if isinstance(error, SerializationFailure):
            return await joining.race("serialization", "its holder has changed since the snapshot", "transaction")
        level = await self._joined.isolation_level()
        is_current = level is None or level.replace("-", " ").lower() == "read committed"
        return await joining.race("undecided", _REVISED, "call" if is_current else "transaction")


def moved_to(request: Request, holder: TaskRow, unique: Unique) -> datetime | None:
    """When the holder is to run from now on: when the duplicate was to, but no later than it may."""
    return capped_run_after(request.task.run_after, holder.enqueued_at, unique.max_delay_seconds)


def duplicate_error(holder: TaskRow, source: ResultSource) -> DuplicateTask:
    """The error of ``on_duplicate="raise"``."""
    return DuplicateTask(
        f"{holder.task_path} is unique, and task {holder.id}, which is {holder.status}, holds its key. "
        "Nothing was written.",
        holder=task_result(holder, source),
    )
