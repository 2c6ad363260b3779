"""Calls a task's function: coroutine functions on the event loop, all others in a thread."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter

from oxpull_async.core.arguments import prepare_result
from oxpull_async.exceptions import InvalidTask, TaskTimeout
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.context import AttemptContext
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.threads import ThreadCall
from oxpull_async.tasks import TaskContext
from oxpull_async.telemetry import log


class Execution:
    """How attempts of one worker are run."""

    def __init__(self, host: Host, threads: int) -> None:
        self._host = host
        self._limiter = CapacityLimiter(threads)

    async def run(self, attempt: Attempt) -> str | None:
        """The return value as JSON text, None for None.

        Raises: whatever the task raises; TaskTimeout beyond its time limit;
        TypeError or ValueError for a value that can't be stored.
        """
        timeout = self._task(attempt).options.timeout
        if timeout is None:
            return prepare_result(await self._call(attempt))
        bound = asyncio.timeout(timeout)
        try:
            async with bound:
                value = await self._call(attempt)
        except TimeoutError as error:
            if not bound.expired():
                raise  # the task's own
            _mention_thread(attempt)
            raise TaskTimeout(timeout) from error
        return prepare_result(value)

    async def _call(self, attempt: Attempt) -> Any:
        """Arguments are parsed for each attempt, so that none sees what another has done to them."""
        task, claim = self._task(attempt), attempt.claim
        function: Callable[..., Any] = task.function
        args, kwargs = json.loads(claim.args), json.loads(claim.kwargs)
        if task.options.takes_context:
            args.insert(0, self._context(attempt))
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        attempt.thread = ThreadCall(partial(function, *args, **kwargs))
        value = await attempt.thread.run(self._limiter)
        return await value if inspect.isawaitable(value) else value

    def _task(self, attempt: Attempt) -> Any:
        path = attempt.claim.task_path
        task = self._host.tasks.get(path)
        if task is None:
            raise InvalidTask(f"the task {path} isn't declared in this process")
        return task

    def _context(self, attempt: Attempt) -> TaskContext:
        claim = attempt.claim
        return AttemptContext(
            id=claim.id,
            attempt=claim.attempts,
            max_attempts=claim.max_attempts,
            task_path=claim.task_path,
            queue_name=claim.queue_name,
            host=self._host,
        )


def _mention_thread(attempt: Attempt) -> None:
    """A thread can't be stopped: it runs on beside the next attempt, and only its result is dropped."""
    if attempt.thread is not None and not attempt.thread.revoke():
        log(
            logging.WARNING,
            "task_thread_abandoned",
            f"task {attempt.claim.task_path} ({attempt.claim.id}) is beyond its timeout, and its thread runs on",
            task_path=attempt.claim.task_path,
            task_id=str(attempt.claim.id),
        )
