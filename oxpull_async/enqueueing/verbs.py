"""The enqueueing verbs: the same on an ``Oxpull``, in a caller's transaction, and as functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oxpull_async.enqueueing.foreign import AnyEnqueueable, Enqueueable, own_task
from oxpull_async.results import EnqueueResult
from oxpull_async.tasks import AnyTask, Call, P, Task


class Verbs:
    """What every place offers from which tasks can be enqueued. Two ways to write rows carry them all."""

    async def enqueue_call(self, task: AnyEnqueueable, call: Call, *, force_unique: bool = False) -> EnqueueResult:
        """What every single enqueue comes down to."""
        raise NotImplementedError

    async def enqueue_calls(
        self, task: AnyEnqueueable, calls: Iterable[Call | Sequence[Any]], *, force_unique: bool = False
    ) -> list[EnqueueResult]:
        """What every bulk enqueue comes down to."""
        raise NotImplementedError

    async def enqueue(self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Write a task row; a unique task's pending row is found instead.

        Raises: InvalidArguments before any SQL, StoreError, and for a unique task UniqueEnqueueRace.
        """
        return await self.enqueue_call(task, Call(args, kwargs))

    async def enqueue_unique(self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """As ``enqueue``, unique even if the task wasn't declared so. Raises: UniqueEnqueueRace."""
        return await self.enqueue_call(task, Call(args, kwargs), force_unique=True)

    async def enqueue_many(self, task: AnyEnqueueable, /, calls: Iterable[Call | Sequence[Any]]) -> list[EnqueueResult]:
        """One result for each call, in order, in one transaction: all of them or none."""
        return await self.enqueue_calls(task, calls)

    async def enqueue_unique_many(
        self, task: AnyEnqueueable, /, calls: Iterable[Call | Sequence[Any]]
    ) -> list[EnqueueResult]:
        """As ``enqueue_many``, unique: a new key's first call is created, its repeats find it."""
        return await self.enqueue_calls(task, calls, force_unique=True)


async def enqueue(task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
    """``task.enqueue(…)`` as a function."""
    return await own_task(task).enqueue(*args, **kwargs)


async def enqueue_unique(task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
    """``task.enqueue_unique(…)`` as a function: exactly one pending row for this call, whatever happens."""
    return await own_task(task).enqueue_unique(*args, **kwargs)


async def enqueue_many(task: AnyTask, /, calls: Iterable[Call | Sequence[Any]]) -> list[EnqueueResult]:
    """``task.enqueue_many(…)`` as a function."""
    return await own_task(task).enqueue_many(calls)


async def enqueue_unique_many(task: AnyTask, /, calls: Iterable[Call | Sequence[Any]]) -> list[EnqueueResult]:
    """``task.enqueue_unique_many(…)`` as a function."""
    return await own_task(task).enqueue_unique_many(calls)
