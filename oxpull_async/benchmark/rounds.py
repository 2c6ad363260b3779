"""Interleaved rounds: every row once per round, in turn with what it stands beside, then medians."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from oxpull_async.app import Oxpull
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.rows import Row

_WORTH_WARMING: Final = 100
_FIRST_GUESS: Final = 20
_FEWEST: Final = 10


@dataclass(slots=True)
class Measured:
    """A row with its rates, one for each round, in tasks per second."""

    row: Row
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """From the slowest round to the quickest, as a share of the median."""
        return (max(self.rates) - min(self.rates)) / self.median


def ratio(entry: Measured, among: Sequence[Measured]) -> float | None:
    """How many times as fast as what it stands beside; None for a floor."""
    by_name = {other.row.name: other for other in among}
    return None if entry.row.beside is None else entry.median / by_name[entry.row.beside].median


async def fitting_count(ox: Oxpull, floor: Floor, row: Row, seconds: float) -> int:
    """How many of a row's calls take about so long here; at most the row's own count."""
    count = min(_FIRST_GUESS, row.count)
    while True:
        rate = await _once(ox, floor, row, count)
        fitting = min(row.count, max(_FEWEST, round(rate * seconds)))
        if count >= fitting / 4:
            return _rounded(fitting)
        count = min(fitting, count * 10)


async def measure(
    ox: Oxpull, floor: Floor, rows: Sequence[Row], rounds: int, say: Callable[[str], None]
) -> list[Measured]:
    """Each row's rates. Every second round runs backwards, so that nobody is always first."""
    measured = [Measured(row) for row in rows]
    for entry in measured:
        if entry.row.count >= _WORTH_WARMING:
            await _once(ox, floor, entry.row, entry.row.count // 10)  # warms caches, plans and connections
    for number in range(rounds):
        for entry in measured if number % 2 == 0 else reversed(measured):
            entry.rates.append(await _once(ox, floor, entry.row, entry.row.count))
            say(f"round {number + 1} of {rounds}: {entry.row.name}: {entry.rates[-1]:,.0f}/s")
    return measured


async def _once(ox: Oxpull, floor: Floor, row: Row, count: int) -> float:
    await floor.empty()
    if row.prepare is not None:
        await row.prepare(ox, floor, count)
    work = row.work(ox, floor)
    gc.collect()
    began = time.perf_counter()
    await work(count)
    return count / (time.perf_counter() - began)


def _rounded(count: int) -> int:
    """To two digits: 4,700 rather than 4,683."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return max(1, count // unit * unit)
