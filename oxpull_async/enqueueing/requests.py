"""From a call to the row that it asks for: everything that can be refused is refused here, before any SQL."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from oxpull_async._codec import encode_result
from oxpull_async._ids import new_id
from oxpull_async.core.arguments import PreparedArguments, prepare_arguments
from oxpull_async.core.keys import own_key, unique_key_of
from oxpull_async.core.names import check_run_after
from oxpull_async.core.uniqueness import capped_run_after
from oxpull_async.exceptions import InvalidArguments, InvalidTask
from oxpull_async.options import Unique
from oxpull_async.ports import NewTask, NewUnique
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call


class Request(NamedTuple):
    """A row to write, and its unique key if it has one."""

    task: NewTask
    key: str | None

    @property
    def unique(self) -> NewUnique:
        """The row with its key; only for a request that has one."""
        if self.key is None:
            raise TypeError(f"a plain request of {self.task.task_path} has no unique key")
        return NewUnique(self.key, self.task)


def make_request(task: AnyTask, call: Call, *, settings: Settings, unique: Unique | None, now: datetime) -> Request:
    """The checked request for one call. Raises: InvalidArguments, InvalidTask."""
    task.bind_arguments(call)
    backend_name = task.options.backend_name or settings.backend_name
    if backend_name == settings.backend_name:
        _check_queue(task, settings.queues)
    encoded = task.encoded(call) if task.options.pydantic else call
    prepared = prepare_arguments(task.path, encoded.args, encoded.kwargs)
    options = task.options
    row = NewTask(
        id=new_id(),
        task_path=task.path,
        args=prepared.args_json,
        kwargs=prepared.kwargs_json,
        queue_name=options.queue_name,
        priority=options.priority,
        takes_context=options.takes_context,
        backend_name=backend_name,
        run_after=None if options.run_after is None else check_run_after(options.run_after, now),
        max_attempts=options.max_attempts or settings.max_attempts,
        enqueued_at=now,
    )
    if unique is not None and unique.max_delay is not None:
        row = row._replace(run_after=capped_run_after(row.run_after, now, unique.max_delay_seconds))
    key = None if unique is None else _key(unique, task, call, row, prepared)
    return Request(row, key)


def row_to_write(
    task: AnyTask, call: Call, now: datetime, *, settings: Settings, unique: Callable[[AnyTask, bool], Unique | None]
) -> NewTask | NewUnique:
    """The checked row for one call, with its key if the task is unique. Raises: InvalidArguments, InvalidTask."""
    request = make_request(task, call, settings=settings, unique=kept_by_lock(unique)(task, False), now=now)
    return request.task if request.key is None else request.unique


def kept_by_lock(uniqueness: Callable[[AnyTask, bool], Unique | None]) -> Callable[[AnyTask, bool], Unique | None]:
    """The same, where only locks will do: for what a schedule or a batch enqueues, a duplicate finds its holder.

    Raises: InvalidTask for a task whose key is a hold.
    """

    def checked(task: AnyTask, force: bool) -> Unique | None:
        unique = uniqueness(task, force)
        if unique is not None and unique.terms is not None:
            raise InvalidTask(
                f"{task.path} is unique with hold= or window=, so it can't be enqueued by a schedule or into a batch"
            )
        return unique

    return checked


def make_requests(
    task: AnyTask,
    calls: Iterable[Call | Sequence[Any]],
    *,
    settings: Settings,
    unique: Unique | None,
    now: datetime,
) -> list[Request]:
    """The checked requests for many calls. Raises: InvalidArguments naming the item's index."""
    if not isinstance(calls, Iterable):
        raise InvalidArguments(
            f"the calls of {task.path} are {calls!r}; give an iterable of argument tuples, such as [(1,), (2,)]"
        )
    return [
        make_request_of(task, item, index, settings=settings, unique=unique, now=now)
        for index, item in enumerate(calls)
    ]


def make_request_of(
    task: AnyTask,
    item: Call | Sequence[Any],
    index: int,
    *,
    settings: Settings,
    unique: Unique | None,
    now: datetime,
) -> Request:
    """The checked request for one of many calls. Raises: InvalidArguments naming its index."""
    call = _as_call(item, index, task)
    try:
        return make_request(task, call, settings=settings, unique=unique, now=now)
    except InvalidArguments as error:
        raise InvalidArguments(f"call {index}: {error}") from error


def _as_call(item: object, index: int, task: AnyTask) -> Call:
    if isinstance(item, Call):
        return item
    if isinstance(item, tuple | list):
        return Call(tuple(item))
    raise InvalidArguments(
        f"call {index} of {task.path} is {item!r}; give a tuple of arguments, such as ({item!r},), "
        "or Call(args, kwargs)"
    )


def _check_queue(task: AnyTask, queues: Collection[str] | None) -> None:
    if queues is not None and task.options.queue_name not in queues:
        raise InvalidTask(
            f"{task.path} goes to the queue {task.options.queue_name!r}, but this Oxpull has queues={sorted(queues)}"
        )


def _key(unique: Unique, task: AnyTask, call: Call, row: NewTask, prepared: PreparedArguments) -> str:
    scope: str
    value: Any
    if unique.by is None:
        if unique.is_plain:
            return unique_key_of(row.backend_name, row.task_path, row.queue_name, prepared)
        scope, value = "arguments", [prepared.args, prepared.kwargs]
    elif callable(unique.by):
        scope, value = "function", unique.by(*call.args, **call.kwargs)
    else:
        scope, value = "parameters", _chosen(unique.by, task, call)
    if task.options.pydantic:
        value = encode_result(value)
    try:
        return own_key(row.backend_name, row.task_path, row.queue_name, scope, value)
    except (TypeError, ValueError, RecursionError) as error:
        shown = reprlib.repr(value)
        raise InvalidArguments(f"the unique key of {task.path} can't be made of {shown}: {error}") from error


def _chosen(names: tuple[str, ...], task: AnyTask, call: Call) -> dict[str, Any]:
    if task.function is None:
        raise InvalidTask(f"{task.path} is a reference without a signature, so Unique(by={names!r}) can't be read")
    bound = task.signature.bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    unknown = [name for name in names if name.partition(".")[0] not in bound.arguments]
    if unknown:
        raise InvalidTask(f"Unique(by={names!r}) of {task.path}: no parameter {', '.join(unknown)}")
    return {name: _field(name, bound.arguments, task) for name in names}


def _field(name: str, arguments: Mapping[str, Any], task: AnyTask) -> Any:
    """A parameter's value, or with dots a field of it: of a model, a dataclass or a mapping."""
    root, *fields = name.split(".")
    value = arguments[root]
    for field in fields:
        try:
            value = value[field] if isinstance(value, Mapping) else getattr(value, field)
        except (KeyError, AttributeError) as error:
            raise InvalidArguments(f"Unique(by=…) of {task.path}: {name!r} finds no {field!r} in {value!r}") from error
    return value
