"""How a task's function is called: on the event loop, in a thread, or in a process of its own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from anyio import CapacityLimiter

from oxpull_async.core.arguments import parse_arguments, prepare_result
from oxpull_async.exceptions import InvalidTask
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.context import AttemptContext
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.processes import run_in_process
from oxpull_async.runtime.threads import ThreadCall
from oxpull_async.tasks import AnyTask


class Room(Enum):
    """Where a function runs."""

    LOOP = auto()
    THREAD = auto()
    PROCESS = auto()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a task's attempts beforehand."""

    task: AnyTask
    function: Callable[..., Any]
    room: Room
    timeout: float | None
    is_exclusive: bool = False


class Execution:
    """How attempts of one worker are run."""

    def __init__(self, host: Host, concurrency: int) -> None:
        self._host = host
        self._threads = CapacityLimiter(concurrency)
        self._processes = CapacityLimiter(concurrency)
        self._plans: dict[str, Plan] = {}

    def plan(self, path: str) -> Plan:
        """How attempts of this task are run. Raises: InvalidTask if it isn't declared in this process."""
        plan = self._plans.get(path)
        if plan is None or self._host.tasks.get(path) is not plan.task:
            plan = self._plans[path] = self._made(path)
        return plan

    def call(self, attempt: Attempt, plan: Plan) -> Awaitable[str | None]:
        """The attempt, to be awaited: its return value as JSON text, None for None.

        Raises: whatever the task raises; TypeError or ValueError for a value
        that can't be stored. Arguments are parsed for each attempt, so that
        none sees what another has done to them.
        """
        if plan.is_exclusive:
            self._host.exclusive.tasks.admit(attempt.claim)
        if plan.room is Room.LOOP:
            return self._on_loop(attempt, plan)
        if plan.room is Room.THREAD:
            return self._in_thread(attempt, plan)
        return run_in_process(plan.function, attempt.claim.args, attempt.claim.kwargs, self._processes)

    def abandon(self, attempt: Attempt) -> None:
        """It comes to no outcome, or its row was taken away: others may have its exclusive key, unless it runs on."""
        if attempt.is_over:
            self._host.exclusive.tasks.let_go([attempt.claim])
        else:
            self._host.exclusive.tasks.forget(attempt.claim)

    def spare_thread(self) -> None:
        """Let one more thread be used, in the place of one that will never end."""
        self._threads.total_tokens += 1

    def _made(self, path: str) -> Plan:
        task = self._host.tasks.get(path)
        if task is None or task.function is None:
            raise InvalidTask(f"the task {path} isn't declared in this process: import its module here")
        if task.options.executor == "process":
            room = Room.PROCESS
        else:
            room = Room.LOOP if inspect.iscoroutinefunction(task.function) else Room.THREAD
        function = task.function if room is Room.PROCESS else task.entry.call
        return Plan(task, function, room, task.options.timeout, task.options.exclusive is not None)

    async def _on_loop(self, attempt: Attempt, plan: Plan) -> str | None:
        args, kwargs = self._arguments(attempt, plan)
        return prepare_result(await plan.function(*args, **kwargs))

    async def _in_thread(self, attempt: Attempt, plan: Plan) -> str | None:
        args, kwargs = self._arguments(attempt, plan)
        attempt.thread = ThreadCall(partial(plan.function, *args, **kwargs))
        value = await attempt.thread.run(self._threads)
        return prepare_result(await value if inspect.isawaitable(value) else value)

    def _arguments(self, attempt: Attempt, plan: Plan) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = parse_arguments(attempt.claim.args, attempt.claim.kwargs)
        if plan.task.entry.wants_context:
            args.insert(0, AttemptContext(attempt, self._host, plan.timeout))
        return args, kwargs
