"""``python -m bench.growth``: what looking at a batch costs, as the batch grows and as the task table does.

A table in Markdown, and with ``--svg`` a plot.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bench.batches import foreign_rows, timed
from bench.engines import Engine, engines, opened
from bench.plot import Line, Plot
from oxpull_async import Batch, Oxpull
from oxpull_async.benchmark.report import machine
from oxpull_async.benchmark.rows import note_task
from tests.servers import ServerMissing

HEAD = ("members", "other task rows", "a pass", "`progress()`", "share of the time that `watch()` counts")
WATCHED_SECONDS = 3.0
WHOLE_TURN = 21
"""A count, and the pause until the next, by the time that a count takes."""


@dataclass(frozen=True, slots=True)
class Point:
    """One batch among so many other task rows. Times are in seconds."""

    members: int
    foreign: int
    one_pass: float
    """Over the batches of all widths."""
    progress: float
    watch_share: float


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; 1 if not one engine could be measured."""
    options = _options(arguments)
    measured: list[tuple[str, list[Point]]] = []
    for engine in engines(options.engine):
        try:
            measured.append((engine.name, asyncio.run(_measure(engine, options))))
        except ServerMissing as missing:
            print(f"{engine.name}: skipped, {missing}", file=sys.stderr)
            continue
        _show(*measured[-1])
    if measured and options.svg:
        options.svg.write_text(_plot(*measured[0]).svg(), encoding="utf-8")
    return 0 if measured else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--engine", choices=["postgres", "sqlite", "mariadb"], help="this one alone; else all")
    parser.add_argument("--members", type=_numbers, default=[1_000, 10_000, 100_000], help="widths (1000,10000,100000)")
    parser.add_argument("--foreign", type=_numbers, default=[0, 300_000], help="other task rows (0,300000)")
    parser.add_argument("--times", type=int, default=9, help="of how many looks to take the median (9)")
    parser.add_argument("--watched", type=float, default=WATCHED_SECONDS, help="seconds to watch at least (3)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="plot the first engine's figures into this file")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


async def _measure(engine: Engine, options: argparse.Namespace) -> list[Point]:
    async with opened(engine) as (ox, _):
        batches = [await _sealed(ox, members) for members in options.members]
        await ox.batches.reconcile()
        points, there = [], 0
        for foreign in sorted(options.foreign):
            await foreign_rows(ox, foreign - there)
            there = foreign
            looks = [(await timed(ox.batches.reconcile))[0] for _ in range(options.times)]
            for batch, members in zip(batches, options.members, strict=True):
                points.append(await _looked_at(ox, batch, members, foreign, statistics.median(looks), options))
        return points


async def _sealed(ox: Oxpull, members: int) -> Batch:
    task = note_task(ox)
    async with ox.batches.create(f"bench {members}") as batch:
        await batch.add_many(task, ((number,) for number in range(members)))
    return batch


async def _looked_at(
    ox: Oxpull, batch: Batch, members: int, foreign: int, one_pass: float, options: argparse.Namespace
) -> Point:
    looks = [(await timed(batch.progress))[0] for _ in range(options.times)]
    progress = statistics.median(looks)
    share = await _share_of_watching(ox, batch, max(options.watched, WHOLE_TURN * progress))
    return Point(members, foreign, one_pass, progress, share)


async def _share_of_watching(ox: Oxpull, batch: Batch, seconds: float) -> float:
    """For how much of the time one who watches has the members counted."""
    store: Any = ox.store.batches
    tally, spent = store.tally, 0.0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal spent
        took, found = await timed(lambda: tally(*arguments, **options))
        spent += took
        return found

    store.tally = counted
    try:
        with anyio.move_on_after(seconds):
            async for _ in batch.watch():
                pass
    finally:
        del store.tally
    return spent / seconds


def _show(engine: str, points: Sequence[Point]) -> None:
    print(f"### {engine}\n\n{machine()}\n\n| {' | '.join(HEAD)} |\n|{'---:|' * len(HEAD)}", flush=True)
    for point in points:
        cells = (
            f"{point.members:,}", f"{point.foreign:,}", f"{point.one_pass * 1000:,.1f} ms",
            f"{point.progress * 1000:,.1f} ms", f"{point.watch_share:.1%}",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    print(flush=True)


def _plot(engine: str, points: Sequence[Point]) -> Plot:
    foreign = sorted({point.foreign for point in points})
    lines = []
    for rows in (foreign[0], foreign[-1]):
        among = [point for point in points if point.foreign == rows]
        words = f"among {rows:,} other rows" if rows else "among no other rows"
        lines.append(Line(f"progress() {words}", [(p.members, p.progress * 1000) for p in among]))
        lines.append(Line(f"a pass {words}", [(p.members, p.one_pass * 1000) for p in among]))
    return Plot(f"{engine}: milliseconds by the number of members", lines)


if __name__ == "__main__":
    sys.exit(main())
