"""What ``ox.bind(connection)`` gives: the enqueueing verbs inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oxpull_async.clock import Clock
from oxpull_async.enqueueing.foreign import AnyEnqueueable, as_task
from oxpull_async.enqueueing.joined import Joining, lock_waits_told
from oxpull_async.enqueueing.placing import Placing
from oxpull_async.enqueueing.requests import Request, make_request, make_requests
from oxpull_async.enqueueing.substitutes import Substitutes
from oxpull_async.enqueueing.unique import row_of
from oxpull_async.enqueueing.verbs import Verbs
from oxpull_async.options import Unique
from oxpull_async.ports import Held, Store, TaskRow
from oxpull_async.ports_joined import JoinedStore
from oxpull_async.results import EnqueueResult, ResultSource, created_result, duplicate_result
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call


@dataclass(frozen=True, slots=True)
class BoundHost:
    """What a bound connection needs of the Oxpull behind it."""

    settings: Settings
    reader: ResultSource
    store: Callable[[], Store]
    uniqueness: Callable[[AnyTask, bool], Unique | None]
    clock: Clock
    substitutes: Substitutes


class Bound(Verbs):
    """The verbs of an Oxpull, joined to the caller's transaction: they commit and roll back with its rows.

    Never flushes, commits, rolls back or repeats anything of the caller's. A
    duplicate or an error leaves the transaction usable, unless
    TransactionRolledBack says that the server has undone it. Hooks for
    ``"enqueued"`` aren't called: whether the rows last is the caller's to decide.
    """

    def __init__(
        self,
        host: BoundHost,
        join: Callable[[], JoinedStore],
        on_created: Callable[[EnqueueResult], None] | None = None,
    ) -> None:
        self._host = host
        self._join = join
        self._on_created = on_created

    async def enqueue_call(self, task: AnyEnqueueable, call: Call, *, force_unique: bool = False) -> EnqueueResult:
        """What every single enqueue comes down to."""
        task = as_task(task)
        host = self._host
        unique = host.uniqueness(task, force_unique)
        request = make_request(task, call, settings=host.settings, unique=unique, now=host.clock.now())
        if (recipient := host.substitutes.recipient) is not None:
            return (await recipient.take(task, [request]))[0]
        store, joined = host.store(), self._join()
        if unique is None:
            async with joined.call(several=False):
                await joined.insert_tasks([request.task])
            return self._result(request, None)
        with lock_waits_told(task.path):
            async with joined.call(several=False):
                (row,) = await self._decide(store, joined, [request], task, unique)
        return self._result(request, row)

    async def enqueue_calls(
        self, task: AnyEnqueueable, calls: Iterable[Call | Sequence[Any]], *, force_unique: bool = False
    ) -> list[EnqueueResult]:
        """What every bulk enqueue comes down to: one savepoint around all of it."""
        task = as_task(task)
        host = self._host
        unique = host.uniqueness(task, force_unique)
        requests = make_requests(task, calls, settings=host.settings, unique=unique, now=host.clock.now())
        if (recipient := host.substitutes.recipient) is not None:
            return await recipient.take(task, requests)
        store = host.store()
        if not requests:
            return []
        joined = self._join()
        if unique is None:
            async with joined.call(several=True):
                await joined.insert_tasks([request.task for request in requests])
            return [self._result(request, None) for request in requests]
        with lock_waits_told(task.path):
            async with joined.call(several=True):
                rows = await self._decide(store, joined, requests, task, unique)
        return [self._result(request, row) for request, row in zip(requests, rows, strict=True)]

    async def _decide(
        self, store: Store, joined: JoinedStore, requests: Sequence[Request], task: AnyTask, unique: Unique
    ) -> list[TaskRow | None]:
        """None for each new row, the pending row for the others. Keys are tried in their order, each once."""
        if not unique.is_plain:
            now, wait = self._host.clock.now(), task.options.wait
            placing = Placing(store, joined, unique, self._host.reader, now=now, wait_seconds=wait)
            return await placing.place(requests)
        first: dict[str, Request] = {}
        for request in requests:
            first.setdefault(request.unique.key, request)
        uniques = [first[key].unique for key in sorted(first)]
        verdicts = await Joining(store, joined, uniques, task.options.wait).decide()
        found = {unique.key: verdict for unique, verdict in zip(uniques, verdicts, strict=True)}
        rows: list[TaskRow | None] = []
        for request in requests:
            winner, verdict = first[request.unique.key], found[request.unique.key]
            if isinstance(verdict, Held):
                rows.append(verdict.row)
            else:
                rows.append(None if winner is request else row_of(winner.task))
        return rows

    def _result(self, request: Request, row: TaskRow | None) -> EnqueueResult:
        if row is not None:
            return duplicate_result(row, self._host.reader)
        result = created_result(request.task, self._host.reader)
        if self._on_created is not None:
            self._on_created(result)
        return result
