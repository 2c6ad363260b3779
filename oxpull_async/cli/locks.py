"""``locks show`` and ``locks release``: one unique key, by the call that it stands for."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from oxpull_async.app import Oxpull
from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show as show_facts
from oxpull_async.cli.target import Target, UsageError
from oxpull_async.tasks import AnyTask


async def show(
    task: str,
    /,
    *,
    target: Where = None,
    args: str = "[]",
    kwargs: str = "{}",
    queue: str | None = None,
    json: Flag = False,
) -> int:
    """Say who holds the key of a call, since when and why.

    Exits with 1 if nobody does.

    Parameters
    ----------
    task
        The path of the task.
    args
        The call's positional arguments, as a JSON array.
    kwargs
        Its keyword arguments, as a JSON object.
    queue
        The queue, if it's not the task's own.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        held = await ox.unique.holder(_task(ox, task, queue), *_read(args, list), **_read(kwargs, dict))
    if held is None:
        print("null" if json else "nobody holds it: an enqueue would make a new row")
        return 1
    facts = {
        "holder": held.task.id,
        "status": held.task.status,
        "because": held.because,
        "since": held.since,
        "held_until": held.held_until,
        "rerun_asked_at": held.rerun_asked_at,
        "arguments": jsonlib.dumps([held.task.args, held.task.kwargs]),
        "run_after": held.task.run_after,
        "attempts": held.task.attempts,
        "key": held.key,
    }
    show_facts({name: value for name, value in facts.items() if json or value is not None}, as_json=json)
    return 0


async def release(
    task: str,
    /,
    *,
    reason: str,
    target: Where = None,
    args: str = "[]",
    kwargs: str = "{}",
    queue: str | None = None,
    json: Flag = False,
) -> int:
    """Let go of the key of a call: the next enqueue makes a new row beside the one that held it.

    Exits with 1 if there was nothing to let go of.

    Parameters
    ----------
    task
        The path of the task.
    reason
        Why; it's logged.
    args
        The call's positional arguments, as a JSON array.
    kwargs
        Its keyword arguments, as a JSON object.
    queue
        The queue, if it's not the task's own.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        found = _task(ox, task, queue)
        positional, keywords = _read(args, list), _read(kwargs, dict)
        held = await ox.unique.holder(found, *positional, **keywords)
        released = await ox.unique.release(found, *positional, reason=reason, **keywords)
    show_facts({"released": released, "holder": None if held is None else held.task.id}, as_json=json)
    return 0 if released else 1


def _task(ox: Oxpull, path: str, queue: str | None) -> AnyTask:
    task = ox.tasks.get(path) or ox.reference(path, unique=True)
    return task if queue is None else task.using(queue_name=queue)


def _read(text: str, kind: type[Any]) -> Any:
    try:
        found = jsonlib.loads(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise UsageError(f"{text!r} must be a JSON {'array' if kind is list else 'object'}")
    return found
