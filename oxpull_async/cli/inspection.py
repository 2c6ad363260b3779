"""``status``, ``health`` and ``locks``: what is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oxpull_async.cli.batches import show_stuck
from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show_json, show_table
from oxpull_async.cli.periods import short_period
from oxpull_async.cli.target import Target
from oxpull_async.cli.vital_signs import age
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.exceptions import ConnectionLost
from oxpull_async.runtime.batch_stats import BatchStats
from oxpull_async.runtime.stats import LIMIT, QueueStats, UniqueLock

_COUNTED = (TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.SUCCESSFUL, TaskStatus.FAILED, TaskStatus.LOST)
_COLUMNS = (
    "queue", "due#", "later#", "running#", "waiting#", "successful#", "failed#", "lost#", "discarded#", "oldest#",
    "a minute#", "failing#",
)  # fmt: skip
_SELDOM: Final = frozenset({"later#", "waiting#", "lost#", "discarded#"})
"""Left out where no queue has any: a terminal of 80 columns has no place for all."""


async def status(*, target: Where = None, json: Flag = False) -> None:
    """Show what is in each queue, and how it fares.

    Due rows could be claimed now, later ones wait for their time. The rate
    and the share that fails are of the last five minutes.

    Parameters
    ----------
    json
        Print JSON: a list of queues.
    """
    async with (target or Target()).find() as ox:
        queues = await ox.stats.queues()
        batches = await ox.stats.batches()
        knows_tasks = bool(ox.tasks)
    if json:
        show_json([queue.model_dump(mode="json") for queue in queues])
        return
    _show_queues(queues)
    if any(not queue.is_exact for queue in queues):
        print(f"Settled rows are counted among the latest {LIMIT:,}.")
    for queue in queues:
        if queue.paused_at is not None:
            print(f"{queue.queue_name} is paused since {queue.paused_at:%Y-%m-%d %H:%M:%S} UTC")
        if queue.limit is not None:
            print(f"{queue.queue_name} runs at most {queue.limit} at once")
    if batches.open or batches.sealed:
        print(f"batches: {batches.open} open, {batches.sealed} sealed, {len(batches.stuck)} stuck")
    show_stuck(batches.stuck)
    if knows_tasks:
        for queue in queues:
            for path, number in queue.unrunnable.items():
                print(f"{queue.queue_name}: {number} due row(s) of {path}, which this app doesn't declare")


def _show_queues(queues: Sequence[QueueStats]) -> None:
    rows = [_figures(queue) for queue in queues]
    shown = [n for n, name in enumerate(_COLUMNS) if name not in _SELDOM or any(row[n] for row in rows)]
    show_table([_COLUMNS[n] for n in shown], [[row[n] for n in shown] for row in rows])


async def health(
    *,
    target: Where = None,
    timeout: float = 5.0,
    heartbeat_file: Path | None = None,
    max_age: float = 60.0,
    json: Flag = False,
) -> int:
    """Say whether the database answers and has the tables, and which batches are stuck. Exits with 1 if it doesn't.

    With a heartbeat file, say whether the worker that touches it is alive,
    and ask no database.

    Parameters
    ----------
    timeout
        How many seconds the database may take.
    heartbeat_file
        The file that the worker was given.
    max_age
        How many seconds ago it must have been touched.
    json
        Print JSON.
    """
    latency: float | None = None
    problems: Sequence[str] = ()
    batches: BatchStats | None = None
    if heartbeat_file is not None:
        problems = _signs_of_death(heartbeat_file, max_age)
    else:
        try:
            async with (target or Target()).find() as ox:
                found = await ox.health(timeout=timeout)
        except ConnectionLost as error:
            problems = [str(error)]
        else:
            latency, problems, batches = found.latency, found.problems, found.batches
    if json:
        under_way = None if batches is None else batches.model_dump(mode="json")
        show_json({"ok": not problems, "latency": latency, "problems": problems, "batches": under_way})
    else:
        print("\n".join(problems) or ("ok" if latency is None else f"ok, answered in {latency * 1000:.1f} ms"))
        show_stuck(() if batches is None else batches.stuck)
    return 1 if problems else 0


def _signs_of_death(file: Path, max_age: float) -> list[str]:
    seconds = age(file)
    if seconds is None:
        return [f"there is no heartbeat file {file}"]
    if not -1 <= seconds <= max_age:
        return [f"the heartbeat file {file} was last touched {seconds:.0f} s ago"]
    return []


async def locks(*, target: Where = None, stale: Flag = False, limit: int = 100, json: Flag = False) -> None:
    """List the locks of unique tasks, in the order of their keys.

    A lock is held while its task is READY or RUNNING. A stale one hinders
    nobody: the next enqueue takes it over, and prune deletes it.

    Parameters
    ----------
    stale
        Only those that nobody holds.
    limit
        How many to list at most.
    json
        Print JSON: a list of locks.
    """
    async with (target or Target()).find() as ox:
        found: list[UniqueLock] = []
        after = ""
        while len(found) < limit and (page := await ox.stats.locks(after=after)):
            after = page[-1].key
            found += [lock for lock in page if not (stale and lock.is_held)]
    found = found[:limit]
    if json:
        show_json([{**lock.model_dump(mode="json"), "is_held": lock.is_held} for lock in found])
        return
    show_table(("key", "task", "status", "queue", "since", "id"), [_row(lock) for lock in found])


def _row(lock: UniqueLock) -> list[object]:
    since = f"{lock.created_at:%Y-%m-%d %H:%M:%S}"
    return [lock.key[:12], lock.task_path, lock.status or "(gone)", lock.queue_name, since, lock.task_id]


def _figures(queue: QueueStats) -> list[str | int | None]:
    return [
        queue.queue_name,
        queue.eligible,
        queue.scheduled,
        *[queue.counts[status] for status in (*_COUNTED, TaskStatus.DISCARDED)],
        None if queue.oldest_age is None else short_period(queue.oldest_age),
        f"{queue.throughput:.1f}",
        None if queue.failure_rate is None else f"{queue.failure_rate:.0%}",
    ]
