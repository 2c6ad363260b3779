"""Tasks: functions that can be enqueued, and what is said of them once, at their declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

from typing_extensions import TypeVar as DefaultingTypeVar

from oxpull_async._codec import encode_untyped
from oxpull_async._entry import Entry, check_dependencies
from oxpull_async.core.durations import Duration
from oxpull_async.core.executors import check_process_function
from oxpull_async.core.names import check_task_path
from oxpull_async.exceptions import InvalidArguments, InvalidTask, NotOpen
from oxpull_async.options import BackoffChoice, Exclusive, TaskOptions, Unique, checked, make_options
from oxpull_async.results import EnqueueResult
from oxpull_async.schedules import ScheduleMaker

P = ParamSpec("P")
R = TypeVar("R")
AnyTask: TypeAlias = "Task[Any, Any]"
State = DefaultingTypeVar("State", default=Any, covariant=True)


class Call(NamedTuple):
    """The arguments of one call, for the ``_many`` forms where a plain tuple can't hold keywords."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}


class TaskContext(Protocol[State]):
    """What a task with ``takes_context=True`` gets as its first argument.

    ``TaskContext[Resources]`` says of what type its ``state`` is.
    """

    @property
    def id(self) -> UUID:
        """The task row's id."""

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""

    @property
    def max_attempts(self) -> int:
        """How many attempts the row has in all."""

    @property
    def task_path(self) -> str:
        """The path under which the row knows this task."""

    @property
    def queue_name(self) -> str:
        """The queue that the row came from."""

    @property
    def deadline(self) -> datetime | None:
        """When the task's ``timeout`` is over; None without one."""

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, never less than 0; None without one."""

    @property
    def cancelled(self) -> bool:
        """Whether the worker wants this attempt to end: a function in a thread has to look, nothing stops it."""

    @property
    def fence(self) -> int | None:
        """The fencing token of an exclusive task: it grows with each run of its key. None for all others."""

    @property
    def state(self) -> State:
        """What ``@ox.task_state`` has opened for the worker; None without one."""
        raise NotImplementedError

    async def enqueue(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Enqueue another task through the Oxpull whose worker runs this one."""


class Enqueuer(Protocol):
    """Who writes task rows: an ``Oxpull``."""

    async def enqueue_call(self, task: AnyTask, call: Call, *, force_unique: bool = False) -> EnqueueResult: ...

    async def enqueue_calls(
        self, task: AnyTask, calls: Iterable[Call | Sequence[Any]], *, force_unique: bool = False
    ) -> list[EnqueueResult]: ...


@dataclass
class Home:
    """Where a task belongs; a router's tasks share one that is filled when the router is included."""

    enqueuer: Enqueuer | None = None


class Task(Generic[P, R]):
    """A function that can be enqueued. Calling it runs the function, here and now.

    Made by ``@ox.task`` (or ``@router.task``); ``ox.reference`` makes one
    without a function, for a task of another code base.
    """

    def __init__(self, function: Callable[..., R] | None, path: str, options: TaskOptions, home: Home) -> None:
        self.function = function
        self.path = path
        self.options = options
        self._home = home
        if function is not None:
            update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Task {self.path}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.function is None:
            raise InvalidTask(f"{self.path} is a reference to a task of another code base; it can't run here")
        return self.function(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Write a task row, or find the pending one if the task is unique.

        Raises: InvalidArguments before any SQL, StoreError, and for a unique task UniqueEnqueueRace.
        """
        return await self._enqueuer().enqueue_call(self, Call(args, kwargs))

    async def enqueue_unique(self, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """As ``enqueue``, unique even if the task wasn't declared so."""
        return await self._enqueuer().enqueue_call(self, Call(args, kwargs), force_unique=True)

    async def enqueue_many(self, calls: Iterable[Call | Sequence[Any]]) -> list[EnqueueResult]:
        """One result for each call, in order, in one transaction: all of them or none.

        A call is a tuple of arguments, or ``Call(args, kwargs)``.
        """
        return await self._enqueuer().enqueue_calls(self, calls)

    async def enqueue_unique_many(self, calls: Iterable[Call | Sequence[Any]]) -> list[EnqueueResult]:
        """As ``enqueue_many``, unique even if the task wasn't declared so."""
        return await self._enqueuer().enqueue_calls(self, calls, force_unique=True)

    def using(
        self,
        *,
        queue_name: str | None = None,
        priority: int | None = None,
        run_after: datetime | timedelta | float | None = None,
        max_attempts: int | None = None,
        wait: Duration | None = None,
    ) -> Task[P, R]:
        """A copy with other options; what isn't given stays. Raises: InvalidTask."""
        given = {
            "queue_name": queue_name,
            "priority": priority,
            "run_after": run_after,
            "max_attempts": max_attempts,
            "wait": wait,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return Task(self.function, self.path, checked(replace(self.options, **changes)), self._home)

    def bind_arguments(self, call: Call) -> None:
        """Check that the call fits the function. Raises: InvalidArguments."""
        if self.function is None or self._fits(call):
            return
        try:
            self.signature.bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise InvalidArguments(f"{self.path}{self.signature}: {error}") from error

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """The same for arguments that are kept to be given later. Raises: InvalidArguments."""
        self.bind_arguments(Call(args, kwargs))

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters that a caller gives: the function's, without the context and dependencies."""
        return self.entry.signature

    def encoded(self, call: Call) -> Call:
        """The call of a task declared with ``pydantic=True``, as JSON has it. Raises: InvalidArguments."""
        if self.function is None:
            return Call(*encode_untyped(self.path, *call))
        return Call(*self.entry.codec.encode(*call))

    @cached_property
    def entry(self) -> Entry:
        """The function as a worker calls it."""
        assert self.function is not None
        options = self.options
        return Entry(self.path, self.function, takes_context=options.takes_context, pydantic=options.pydantic)

    @cached_property
    def _positional_range(self) -> tuple[int, int]:
        """How many positional arguments alone make a valid call; (1, 0) where that needs a closer look."""
        parameters = list(self.signature.parameters.values())
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if any(parameter.kind not in plain for parameter in parameters):
            return 1, 0
        required = sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
        return required, len(parameters)

    def _fits(self, call: Call) -> bool:
        least, most = self._positional_range
        return not call.kwargs and least <= len(call.args) <= most

    @property
    def owner(self) -> Enqueuer | None:
        """The Oxpull that it belongs to; None while it's on a router that none includes."""
        return self._home.enqueuer

    def _enqueuer(self) -> Enqueuer:
        if self._home.enqueuer is None:
            raise NotOpen(
                f"{self.path} was declared on a TaskRouter that no Oxpull includes; call ox.include(router) first"
            )
        return self._home.enqueuer


class TaskMaker(ScheduleMaker):
    """Declares tasks by decorator: the part that ``Oxpull`` and ``TaskRouter`` share."""

    def __init__(self) -> None:
        super().__init__()
        self._home = Home()
        self._tasks: dict[str, AnyTask] = {}

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[True],
        queue_name: str = ...,
        priority: int = ...,
        run_after: datetime | Duration | None = ...,
        max_attempts: int | None = ...,
        timeout: Duration | None = ...,
        backoff: Duration | BackoffChoice | None = ...,
        unique: bool | Unique = ...,
        exclusive: bool | Exclusive = ...,
        pydantic: bool = ...,
    ) -> ContextTaskDecorator: ...

    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[False] = ...,
        queue_name: str = ...,
        priority: int = ...,
        run_after: datetime | Duration | None = ...,
        max_attempts: int | None = ...,
        timeout: Duration | None = ...,
        backoff: Duration | BackoffChoice | None = ...,
        unique: bool | Unique = ...,
        exclusive: bool | Exclusive = ...,
        executor: Literal["process"] | None = ...,
        pydantic: bool = ...,
    ) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a function as a task: ``@ox.task`` or ``@ox.task(unique=True, …)``.

        Takes any named function, sync or async, also a nested one (which only
        a process that has declared it can run). Raises: InvalidTask.
        """
        if function is not None:
            return self._declare(function, make_options({}))
        made = make_options(options)
        return lambda decorated: self._declare(decorated, made)

    def _declare(self, function: Callable[..., Any], options: TaskOptions) -> AnyTask:
        task: AnyTask = Task(function, task_path(function), options, self._home)
        if options.executor == "process":
            check_process_function(
                function, task.path, takes_context=options.takes_context, is_encoded=options.pydantic
            )
        check_dependencies(task.path, function)
        if options.takes_context and not inspect.signature(function).parameters:
            raise InvalidTask(f"{task.path} has takes_context=True but no parameter to take it")
        check_exclusive(task)
        _check_unique(task)
        if (known := self._tasks.get(task.path)) is not None and known.function is not function:
            raise InvalidTask(f"the task path {task.path} is taken by {known.function!r}; rename one")
        self._tasks[task.path] = task
        return task


def check_exclusive(task: AnyTask) -> None:
    """Raises: InvalidTask for a parameter that the function doesn't have."""
    exclusive = task.options.exclusive
    if exclusive is None or exclusive.by is None or callable(exclusive.by):
        return
    unknown = [name for name in exclusive.by if name not in task.signature.parameters]
    if unknown:
        raise InvalidTask(f"{task.path}{task.signature}: Exclusive(by=…) names no parameter {', '.join(unknown)}")


def _check_unique(task: AnyTask) -> None:
    by = None if task.options.unique is None else task.options.unique.by
    if by is None or callable(by):
        return
    unknown = [name for name in by if name.partition(".")[0] not in task.signature.parameters]
    if unknown:
        raise InvalidTask(f"{task.path}{task.signature}: Unique(by=…) names no parameter {', '.join(unknown)}")


class TaskDecorator(Protocol):
    """What ``ox.task(…)`` with options returns."""

    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ContextTaskDecorator(Protocol):
    """What ``ox.task(takes_context=True, …)`` returns: callers don't give the context."""

    def __call__(self, function: Callable[Concatenate[TaskContext[Any], P], R], /) -> Task[P, R]: ...


class TaskRouter(TaskMaker):
    """Collects tasks of a module that doesn't know its ``Oxpull`` yet; ``ox.include(router)`` joins them."""

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The declared tasks, by path."""
        return self._tasks

    def join(self, enqueuer: Enqueuer, tasks: dict[str, AnyTask]) -> None:
        """Belong to an Oxpull from now on, tasks declared later included.

        Raises: InvalidTask if it belongs to another one.
        """
        if self._home.enqueuer not in (None, enqueuer):
            raise InvalidTask("this TaskRouter belongs to another Oxpull already")
        self._home.enqueuer = enqueuer
        tasks.update(self._tasks)
        self._tasks = tasks


def task_path(function: Callable[..., Any]) -> str:
    """``module.qualname``, the name under which rows know a function. Raises: InvalidTask."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not callable(function) or not name or not module or "<lambda>" in name.rsplit(".", 1)[-1]:
        raise InvalidTask(f"a task must be a named function, not {function!r}; write it with `def`")
    return check_task_path(f"{module}.{name}")
