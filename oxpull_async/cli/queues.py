"""``queues``: stop queues, let them go again, limit them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict

from cyclopts import App

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show, show_json, show_table
from oxpull_async.cli.target import Target, UsageError

queues: App = App(name="queues", help="Pause queues, resume them, limit how much of them runs at once, and list both.")


@queues.command
async def pause(
    *names: str,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Have no worker claim rows of these queues, from now on and everywhere; what runs already runs on.

    Django workers don't know of it. Exits with 1 if one was paused already.

    Parameters
    ----------
    names
        Names of queues.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        return _tell("paused", await _each(ox.queues.pause, names), as_json=json)


@queues.command
async def resume(
    *names: str,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Have rows of these queues claimed again. Exits with 1 if one wasn't paused.

    Parameters
    ----------
    names
        Names of queues.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        return _tell("resumed", await _each(ox.queues.resume, names), as_json=json)


@queues.command
async def limit(
    name: str,
    places: int | None = None,
    /,
    *,
    none: Flag = False,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Have no more than so many rows of a queue run at once, over all workers of this library.

    Django workers don't know of it. Exits with 1 if that was its limit already.

    Parameters
    ----------
    name
        The queue.
    places
        How many.
    none
        Lift the limit.
    json
        Print JSON.
    """
    if (places is None) != none:
        raise UsageError("give either how many rows may run at once, or --none")
    async with (target or Target()).find() as ox:
        has_changed = await ox.queues.limit(name, places)
    show({"queue": name, "limit": places, "changed": has_changed}, as_json=json)
    return 0 if has_changed else 1


@queues.command(name="list")
async def list_(
    *,
    target: Where = None,
    json: Flag = False,
) -> None:
    """Show the queues that are paused or limited, and since when they are.

    Parameters
    ----------
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        paused = await ox.queues.paused()
        limited = await ox.queues.limited()
    if json:
        show_json([*map(asdict, paused), *map(asdict, limited)])
        return
    if paused:
        show_table(["queue", "paused at"], [(queue.queue_name, queue.paused_at) for queue in paused])
    else:
        print("no queue is paused")
    if limited:
        rows = [(queue.queue_name, queue.places, queue.running, queue.limited_at) for queue in limited]
        show_table(["queue", "at most", "running", "limited at"], rows)


async def _each(deed: Callable[[str], Awaitable[bool]], names: Iterable[str]) -> dict[str, bool]:
    return {name: await deed(name) for name in names}


def _tell(deed: str, changed: dict[str, bool], *, as_json: bool) -> int:
    unchanged = [name for name, is_new in changed.items() if not is_new]
    show({deed: [name for name, is_new in changed.items() if is_new], "unchanged": unchanged}, as_json=as_json)
    return 1 if unchanged else 0
