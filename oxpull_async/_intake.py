"""Enqueueing in transactions of the library's own: from a call to its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from oxpull_async._meanwhile import meanwhile
from oxpull_async._opening import Opening
from oxpull_async.clock import Clock
from oxpull_async.enqueueing.foreign import AnyEnqueueable, as_task
from oxpull_async.enqueueing.policies import PlacingHost
from oxpull_async.enqueueing.requests import Request, make_request, make_requests
from oxpull_async.enqueueing.substitutes import Substitutes
from oxpull_async.options import Unique
from oxpull_async.ports import Held
from oxpull_async.results import EnqueueResult, ResultSource, created_result, duplicate_result
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call

_BY_ALL_ARGUMENTS: Final = Unique()  # checked once, and not at each call


class Intake:
    """The two ways in which all enqueues of one Oxpull go that aren't in a caller's transaction."""

    def __init__(
        self,
        opening: Opening,
        settings: Settings,
        clock: Clock,
        substitutes: Substitutes,
        reader: ResultSource,
        announce: Callable[[Sequence[EnqueueResult]], Awaitable[None]],
        tell: Callable[[], None],
    ) -> None:
        self._opening = opening
        self._settings = settings
        self._clock = clock
        self._substitutes = substitutes
        self._reader = reader
        self._announce = announce
        self._placing = PlacingHost(reader, clock, self._created, tell)

    async def call(self, task: AnyEnqueueable, call: Call, force_unique: bool) -> EnqueueResult:
        """One call."""
        task = as_task(task)
        unique = self.uniqueness(task, force_unique)
        request = make_request(task, call, settings=self._settings, unique=unique, now=self._clock.now())
        if (recipient := self._substitutes.recipient) is not None:
            return (await recipient.take(task, [request]))[0]
        opened = self._opening.require()
        create = partial(created_result, request.task, self._reader)
        if unique is None:
            _, result = await meanwhile(opened.desk.insert(request.task), create)
        elif not unique.is_plain:
            return (await opened.policies.enqueue([request], unique, self._placing, self._wait(task)))[0]
        else:
            insertion = opened.desk.insert_unique(request.unique, wait_seconds=self._wait(task))
            answer, result = await meanwhile(insertion, create)
            if isinstance(answer, Held):
                assert answer.row is not None
                return duplicate_result(answer.row, self._reader)
        await self._announce((result,))
        return result

    async def calls(
        self, task: AnyEnqueueable, calls: Iterable[Call | Sequence[Any]], force_unique: bool
    ) -> list[EnqueueResult]:
        """Many calls, all or none."""
        task = as_task(task)
        unique = self.uniqueness(task, force_unique)
        requests = make_requests(task, calls, settings=self._settings, unique=unique, now=self._clock.now())
        if (recipient := self._substitutes.recipient) is not None:
            return await recipient.take(task, requests)
        opened = self._opening.require()
        if unique is None:
            await opened.desk.insert_many(requests)
            return await self._created(requests)
        if not unique.is_plain:
            return await opened.policies.enqueue(requests, unique, self._placing, self._wait(task))
        rows = await opened.desk.insert_unique_many(requests, wait_seconds=self._wait(task))
        created = iter(await self._created([r for r, row in zip(requests, rows, strict=True) if row is None]))
        return [next(created) if row is None else duplicate_result(row, self._reader) for row in rows]

    def uniqueness(self, task: AnyTask, force: bool) -> Unique | None:
        """What makes this call unique, if anything does: its declaration, the settings, or the verb."""
        if task.options.unique is not None:
            return task.options.unique
        return _BY_ALL_ARGUMENTS if force or task.path in self._settings.unique_tasks else None

    def _wait(self, task: AnyTask) -> float:
        return self._settings.unique_wait if task.options.wait is None else task.options.wait

    async def _created(self, requests: Sequence[Request]) -> list[EnqueueResult]:
        results = [created_result(r.task, self._reader) for r in requests]
        await self._announce(results)
        return results
