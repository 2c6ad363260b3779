"""``reap`` and ``prune``: what keeps the tables in order."""

from __future__ import annotations

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show
from oxpull_async.cli.periods import parse_period
from oxpull_async.cli.target import Target


async def reap(
    *,
    target: Where = None,
    json: Flag = False,
) -> None:
    """Free the rows whose lease has run out. Running workers do so by themselves.

    Rows go back to READY, or become LOST where no attempt is left.

    Parameters
    ----------
    json
        Print JSON.
    """
    requeued: list[str] = []
    lost: list[str] = []
    async with (target or Target()).find() as ox:
        while (reaped := await ox.reap()).requeued or reaped.lost:
            requeued += map(str, reaped.requeued)
            lost += map(str, reaped.lost)
    show({"requeued": requeued, "lost": lost}, as_json=json)


async def prune(
    *,
    target: Where = None,
    older_than: str = "7d",
    include_failed: Flag = False,
    batches_older_than: str | None = None,
    json: Flag = False,
) -> None:
    """Delete rows that were settled long ago, unique locks that name no pending row, and old ticks of schedules.

    SUCCESSFUL and DISCARDED rows; FAILED and LOST ones only if asked for. A
    schedule's newest tick stays.

    Parameters
    ----------
    older_than
        How long ago a row must have been settled, such as 7d, 12h or 30m.
    include_failed
        Delete FAILED and LOST rows too.
    batches_older_than
        Delete batches too that were completed so long ago, with their members.
    json
        Print JSON.
    """
    period = parse_period(older_than)
    batches = None if batches_older_than is None else parse_period(batches_older_than)
    async with (target or Target()).find() as ox:
        pruned = await ox.prune(older_than=period, include_failed=include_failed, batches_older_than=batches)
    facts = {"tasks": pruned.tasks, "locks": pruned.locks, "ticks": pruned.ticks, "batches": pruned.batches}
    show(facts, as_json=json)
