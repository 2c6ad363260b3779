"""``retry``, ``discard`` and ``cancel``: single rows."""

from __future__ import annotations

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show
from oxpull_async.cli.target import Target
from oxpull_async.runtime.actions import Changed


async def retry(
    *ids: str,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Put FAILED and LOST rows back to READY, each with one further attempt.

    Exits with 1 if any of them was left as it was.

    Parameters
    ----------
    ids
        Ids of task rows.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        return _tell("retried", await ox.actions.retry_many(ids), as_json=json)


async def discard(
    *ids: str,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Settle READY, WAITING, FAILED and LOST rows as DISCARDED: they won't run again.

    Exits with 1 if any of them was left as it was.

    Parameters
    ----------
    ids
        Ids of task rows.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        return _tell("discarded", await ox.actions.discard_many(ids), as_json=json)


async def cancel(
    *ids: str,
    target: Where = None,
    json: Flag = False,
) -> int:
    """Settle READY, WAITING and RUNNING rows as DISCARDED. A running task's worker stops it at its next renewal.

    Exits with 1 if any of them was left as it was.

    Parameters
    ----------
    ids
        Ids of task rows.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        return _tell("cancelled", await ox.actions.cancel_many(ids), as_json=json)


def _tell(deed: str, done: Changed, *, as_json: bool) -> int:
    show({deed: done.changed, "skipped": done.skipped}, as_json=as_json)
    return 1 if done.skipped else 0
