"""``batches``, ``batch`` and ``reconcile``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oxpull_async.app import Oxpull
from oxpull_async.batches.batch import Batch
from oxpull_async.batches.models import BatchInfo, BatchProgress
from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show, show_json, table_of
from oxpull_async.cli.target import Target
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.runtime.batch_stats import StuckBatch

_EVERY_SECONDS: Final = 1.0
_COLUMNS = ("batch", "status", "created", "total#", "pending#", "succeeded#", "failed#", "unattributed#", "id")


async def batches(
    *, target: Where = None, status: BatchStatus | None = None, limit: int = 20, watch: Flag = False, json: Flag = False
) -> None:
    """List the newest batches, and how far each is.

    Parameters
    ----------
    status
        Only those of this status.
    limit
        How many to list at most.
    watch
        Go on showing them, until interrupted.
    json
        Print JSON: a list of batches.
    """
    async with (target or Target()).find() as ox:
        if json:
            show_json([_facts(info, progress) for info, progress in await _read(ox, status, limit)])
            return
        console = Console()
        if not watch:
            console.print(_table(await _read(ox, status, limit)))
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(_table(await _read(ox, status, limit)), refresh=True)
                await anyio.sleep(_EVERY_SECONDS)


async def batch(id: str, /, *, target: Where = None, watch: Flag = False, most: int = 10, json: Flag = False) -> None:
    """Show how far a batch is, and why it isn't complete.

    Parameters
    ----------
    id
        The batch's id.
    watch
        Show its progress until it's complete.
    most
        How many of the members that it waits for to list.
    json
        Print JSON; with --watch, one line for each change.
    """
    async with (target or Target()).find() as ox:
        found = await ox.batches.get(id)
        if watch and json:
            async for progress in found.watch():
                show_json(progress.model_dump())
        elif watch:
            await _show_progress(found)
        elif json:
            show_json((await found.explain(most=most)).model_dump(mode="json"))
        else:
            await _explain(found, most)


async def reconcile(*, target: Where = None, json: Flag = False) -> int:
    """Complete the batches whose members are all settled: one pass. Running apps and workers do so by themselves.

    Only a process that knows a batch's callbacks can complete it, so give --app. Exits with 1 if batches are stuck.

    Parameters
    ----------
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        completed = await ox.batches.reconcile()
        stuck = await ox.batches.stuck()
    show({"completed": completed, "stuck": [f"{each.id}: {each.reason}" for each in stuck]}, as_json=json)
    return 1 if stuck else 0


def show_stuck(stuck: Sequence[StuckBatch]) -> None:
    """A line for each."""
    for each in stuck:
        print(f"batch {each.id} is stuck: {each.reason}")


async def _read(ox: Oxpull, status: BatchStatus | None, limit: int) -> list[tuple[BatchInfo, BatchProgress]]:
    infos = await ox.batches.latest(status=status, limit=limit)
    return [(info, await (await ox.batches.get(info.id)).progress()) for info in infos]


def _facts(info: BatchInfo, progress: BatchProgress) -> dict[str, object]:
    return {**info.model_dump(mode="json"), **progress.model_dump()}


def _table(found: Sequence[tuple[BatchInfo, BatchProgress]]) -> Table:
    return table_of(_COLUMNS, [_row(info, progress) for info, progress in found])


def _row(info: BatchInfo, progress: BatchProgress) -> list[object]:
    numbers = [progress.total, progress.pending, progress.succeeded, progress.failed, progress.unattributed]
    return [info.name, info.status, f"{info.created_at:%Y-%m-%d %H:%M:%S}", *numbers, info.id]


async def _explain(found: Batch, most: int) -> None:
    explanation = await found.explain(most=most)
    console = Console(highlight=False)
    console.print(f"{found.name} ({found.id})")
    console.print(str(explanation))
    facts = explanation.progress.model_dump()
    console.print(", ".join(f"{number} {name}" for name, number in facts.items()))


async def _show_progress(found: Batch) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, TimeElapsedColumn()) as bar:
        shown = bar.add_task(found.name, total=None, words="")
        async for progress in found.watch():
            words = f"{progress.failed} failed, {progress.unattributed} unattributed"
            bar.update(shown, total=progress.total, completed=progress.finished, words=words)
