"""``queues``: stop queues, and let them go again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict

from cyclopts import App

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show, show_json, show_table
from oxpull_async.cli.target import Target

queues: App = App(name="queues", help="Pause queues, resume them, and list those that are paused.")


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


@queues.command(name="list")
async def list_(
    *,
    target: Where = None,
    json: Flag = False,
) -> None:
    """Show the paused queues, and since when they are.

    Parameters
    ----------
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        paused = await ox.queues.paused()
    if json:
        show_json([asdict(queue) for queue in paused])
    elif not paused:
        print("no queue is paused")
    else:
        show_table(["queue", "paused at"], [(queue.queue_name, queue.paused_at) for queue in paused])


async def _each(deed: Callable[[str], Awaitable[bool]], names: Iterable[str]) -> dict[str, bool]:
    return {name: await deed(name) for name in names}


def _tell(deed: str, changed: dict[str, bool], *, as_json: bool) -> int:
    unchanged = [name for name, is_new in changed.items() if not is_new]
    show({deed: [name for name, is_new in changed.items() if is_new], "unchanged": unchanged}, as_json=as_json)
    return 1 if unchanged else 0
