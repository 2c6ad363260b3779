"""What a worker does: draining a full queue, and starting a task that comes to an idle one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bench import peer
from oxpull_async import Oxpull, Task, Worker
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.latencies import Latency, starts
from oxpull_async.benchmark.rows import Prepare, Work, drain, fill
from oxpull_async.drivers._procedure import Procedure

_BLOCKS: Final = 4


async def fetch(number: int) -> None:
    """As a task that waits for somebody."""
    await asyncio.sleep(0.02)


async def fetch_exclusively(number: int) -> None:
    """The same, each with a key of its own."""
    await asyncio.sleep(0.02)


def filled_with_fetches(*, exclusive: bool) -> Prepare:
    """Have so many rows waiting."""

    async def prepare(ox: Oxpull, floor: Floor, count: int) -> None:
        await _fetch(ox, exclusive).enqueue_many([(number,) for number in range(count)])

    return prepare


def fetches(ox: Oxpull, floor: Floor, *, exclusive: bool) -> Work:
    """One process, 50 at once."""
    _fetch(ox, exclusive)

    async def work(count: int) -> None:
        await Worker(ox, concurrency=50).run(until_idle=True)

    return work


def _fetch(ox: Oxpull, exclusive: bool) -> Task[[int], Any]:
    return ox.task(exclusive=True)(fetch_exclusively) if exclusive else ox.task(fetch)


async def notes(ox: Oxpull, floor: Floor, scale: float, engine: str) -> list[str]:
    """What a rate can't say: how long a start takes, beside the peer's too, and how many statements a drain needs."""
    samples = max(5, round(50 * scale))
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(_BLOCKS):
        ours += (await starts(ox, samples, within=float("inf"))).seconds
        if peer.is_here(engine):
            theirs += await peer.starts(ox, samples)
    told = [_told("from the call of enqueue to the start on an idle queue", ours)]
    told += [_told(f"the same, {peer.NAME}", theirs)] if theirs else []
    return [await _statements(ox, floor, max(1, round(1_000 * scale))), *told]


async def _statements(ox: Oxpull, floor: Floor, count: int) -> str:
    await floor.empty()
    await fill(ox, floor, count)
    with _counted(ox) as counts:
        await drain(ox, floor)(count)
    told = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    return f"statements to drain {count:,} tasks: {counts.total()} ({told})"


@contextmanager
def _counted(ox: Oxpull) -> Iterator[Counter[str]]:
    """Counts the statements that go through the pool, whatever the clock says of them."""
    store: Any = ox.store
    pool, counts = store._pool, Counter[str]()
    store._pool = _CountingPool(pool, counts)
    try:
        yield counts
    finally:
        store._pool = pool


class _CountingPool:
    def __init__(self, pool: Any, counts: Counter[str]) -> None:
        self._pool = pool
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def read(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.read(self._watched(procedure), **bounds)

    async def write(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.write(self._watched(procedure), **bounds)

    async def transact(self, procedure: Procedure[Any], **bounds: Any) -> Any:
        return await self._pool.transact(self._watched(procedure), **bounds)

    def _watched(self, procedure: Procedure[Any]) -> Procedure[Any]:
        try:
            step = next(procedure)
            while True:
                self._counts[step.statement.name] += 1
                step = procedure.send((yield step))
        except StopIteration as stop:
            return stop.value


def _told(what: str, seconds: Sequence[float]) -> str:
    took = Latency(what, seconds)
    return f"{what}: p50 {took.p50 * 1e3:.1f} ms, p95 {took.p95 * 1e3:.1f} ms"
