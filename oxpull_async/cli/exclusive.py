"""``locks exclusive``: who has which exclusive key."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show_json, show_table
from oxpull_async.cli.target import Target
from oxpull_async.ports_exclusive import KeyHolder

_COLUMNS: Final = ("key", "holder", "worker", "since", "until", "token#", "waiting#", "id")


async def exclusive(key: str | None = None, /, *, target: Where = None, limit: int = 100, json: Flag = False) -> int:
    """List who has which exclusive key, since when, and until when at least.

    Exits with 1 if a key is given and nobody has it.

    Parameters
    ----------
    key
        The name of one key, such as feed:https://example.org/rss; for a task without a name of its own the task's path
        comes first.
    limit
        How many to list at most.
    json
        Print JSON: a list of holders.
    """
    async with (target or Target()).find() as ox:
        holders = await ox.exclusive.holders(key, limit=limit)
    if json:
        show_json([asdict(holder) for holder in holders])
    elif not holders:
        print("nobody has an exclusive key" if key is None else "nobody has this key")
    else:
        show_table(_COLUMNS, [_row(holder) for holder in holders])
    return 1 if key is not None and not holders else 0


def _row(holder: KeyHolder) -> list[object]:
    until = f"{holder.until:%Y-%m-%d %H:%M:%S}" + (" (over)" if holder.is_over else "")
    since = None if holder.since is None else f"{holder.since:%Y-%m-%d %H:%M:%S}"
    return [holder.name, _who(holder), holder.worker_id, since, until, holder.fence, holder.waiting, holder.owner]


def _who(holder: KeyHolder) -> str:
    if holder.is_reserved:
        return "(kept for the next)"
    return holder.task_path or "(a block)"
