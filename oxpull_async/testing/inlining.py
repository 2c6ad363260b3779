"""``inline``: an enqueue runs its task there and then, and no database is touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from uuid import UUID

from oxpull_async.app import Oxpull
from oxpull_async.core.failures import error_record
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.enqueueing.requests import Request
from oxpull_async.enqueueing.unique import row_of
from oxpull_async.exceptions import TaskTimeout
from oxpull_async.ports import Claim, TaskRow
from oxpull_async.results import EnqueueResult, created_result, duplicate_result
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.execution import Execution
from oxpull_async.runtime.reading import Reader
from oxpull_async.tasks import AnyTask

_THREADS = 10
_WORKER = "inline"


@contextmanager
def inline(ox: Oxpull, *, raise_errors: bool = True) -> Iterator[InlineQueue]:
    """While the block lasts, an enqueue runs its task before it returns, and writes to no database.

    ``ox`` needn't be open. Everything that is refused before SQL is refused,
    arguments and return values go through JSON, and timeouts hold. A task runs
    once, whatever its ``run_after`` and ``max_attempts``; what it raises is
    raised by the enqueue, or with ``raise_errors=False`` kept as a FAILED
    result. What is bound to a transaction runs at once as well, before that
    commits. A task of another code base is only noted, as READY.
    """
    queue = InlineQueue(ox, raise_errors=raise_errors)
    before, ox.substitutes.recipient = ox.substitutes.recipient, queue
    try:
        yield queue
    finally:
        ox.substitutes.recipient = before


class InlineQueue:
    """The rows of one ``inline`` block, in memory."""

    def __init__(self, ox: Oxpull, *, raise_errors: bool) -> None:
        self._ox = ox
        self._raise_errors = raise_errors
        self._rows: dict[UUID, TaskRow] = {}
        self._holders: dict[str, UUID] = {}
        self._reader = Reader(lambda: self, ox.settle_hints)

    @property
    def rows(self) -> list[TaskRow]:
        """Every row, in the order of the enqueues."""
        return list(self._rows.values())

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        """The row as it is now."""
        return self._rows.get(task_id)

    async def take(self, task: AnyTask, requests: Sequence[Request]) -> list[EnqueueResult]:
        """Run each request, one after another; a unique one that is running already is found."""
        return [await self._take(task, request) for request in requests]

    async def _take(self, task: AnyTask, request: Request) -> EnqueueResult:
        holder = None if request.key is None else self._holders.get(request.key)
        if holder is not None:
            return duplicate_result(self._rows[holder], self._reader)
        row = self._rows[request.task.id] = row_of(request.task)
        result = created_result(request.task, self._reader)
        await self._ox.hooks.call("enqueued", result)
        if self._ox.tasks.get(row.task_path) is None:
            self._hold(request)
            return result
        await self._run(request, row)
        await result.refresh()
        return result

    async def _run(self, request: Request, row: TaskRow) -> None:
        self._hold(request)
        try:
            await self._attempt(row)
        finally:
            if request.key is not None:
                del self._holders[request.key]

    async def _attempt(self, row: TaskRow) -> None:
        running = self._save(_started(self._ox, row))
        try:
            execution = Execution(self._ox, _THREADS)
            plan = execution.plan(row.task_path)
            async with self._ox.task_state_keeper.kept(), _time_limit(plan.timeout):
                value = await execution.call(Attempt(_claim(running)), plan)
        except Exception as error:
            errors = json.dumps([error_record(error)])
            self._save(running._replace(status=TaskStatus.FAILED, errors=errors, finished_at=self._ox.clock.now()))
            if self._raise_errors:
                raise
        else:
            done = running._replace(status=TaskStatus.SUCCESSFUL, return_value=value)
            self._save(done._replace(finished_at=self._ox.clock.now()))

    def _hold(self, request: Request) -> None:
        if request.key is not None:
            self._holders[request.key] = request.task.id

    def _save(self, row: TaskRow) -> TaskRow:
        self._rows[row.id] = row
        return row


@asynccontextmanager
async def _time_limit(timeout: float | None) -> AsyncIterator[None]:
    bound = asyncio.timeout(timeout)
    try:
        async with bound:
            yield
    except TimeoutError as error:
        if timeout is None or not bound.expired():
            raise  # the task's own
        raise TaskTimeout(timeout) from error


def _started(ox: Oxpull, row: TaskRow) -> TaskRow:
    now = ox.clock.now()
    return row._replace(
        status=TaskStatus.RUNNING,
        attempts=1,
        lease_epoch=1,
        started_at=now,
        last_attempted_at=now,
        locked_by=_WORKER,
        locked_at=now,
        lease_expires_at=now + timedelta(seconds=ox.settings.lease),
        worker_ids=json.dumps([_WORKER]),
    )


def _claim(row: TaskRow) -> Claim:
    return Claim(**{name: getattr(row, name) for name in Claim._fields})
