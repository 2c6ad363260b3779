"""``schedules``: what is enqueued by the clock, and when it comes next."""

from __future__ import annotations

from dataclasses import asdict

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show_json, show_table
from oxpull_async.cli.target import Target
from oxpull_async.runtime.scheduling import Upcoming


async def schedules(
    *,
    target: Where = None,
    json: Flag = False,
) -> None:
    """Show every schedule, the soonest first: its next tick, and the last one that some process has fired.

    Schedules belong to code, so this needs the app: --app module:ox.

    Parameters
    ----------
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        upcoming = await ox.schedules.upcoming()
    if json:
        show_json([asdict(found) for found in upcoming])
    elif not upcoming:
        print("no schedule runs here (schedules are declared in code: --app module:ox)")
    else:
        show_table(["name", "task", "timing", "next tick", "last tick", "from"], map(_row, upcoming))


def _row(found: Upcoming) -> list[object]:
    kept = "database" if found.stored else "code"
    return [found.name, found.task_path, found.timing, found.next_tick, found.last_tick, kept]
