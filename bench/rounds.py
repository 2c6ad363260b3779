"""Interleaved rounds: every row once per round, in turn with what it stands beside, then medians."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.floors import Floor
from bench.rows import Row
from oxpull_async import Oxpull

_WORTH_WARMING: Final = 100


@dataclass(slots=True)
class Measured:
    """A row with its rates, one for each round, in tasks per second."""

    row: Row
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


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
        await row.prepare(ox, floor)
    work = row.work(ox, floor)
    gc.collect()
    began = time.perf_counter()
    await work(count)
    return count / (time.perf_counter() - began)
