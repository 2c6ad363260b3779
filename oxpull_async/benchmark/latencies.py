"""What is measured as a time: from an enqueue to a start, from a batch's last member to its callback."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from oxpull_async.app import Oxpull
from oxpull_async.batches.batch import Batch
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.rows import note_task
from oxpull_async.runtime.worker import Worker

_MEMBERS: Final = 5
_PAUSE_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0
_FEWEST: Final = 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Latency:
    """How long each of some occurrences took, in seconds."""

    name: str
    seconds: Sequence[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.seconds, n=20, method="inclusive")[18]


async def round_trips(floor: Floor, samples: int) -> Latency:
    """The least that anything can take that asks the server."""
    await floor.ping()
    found = []
    for _ in range(samples):
        began = time.perf_counter()
        await floor.ping()
        found.append(time.perf_counter() - began)
    return Latency("round trip of a SELECT 1", found)


async def starts(ox: Oxpull, samples: int, within: float) -> Latency:
    """From the call of enqueue to the first line of the task, with a worker in this process that has nothing to do.

    Ends after so many seconds, if that is before so many samples.
    """
    started: asyncio.Queue[float] = asyncio.Queue()
    found: list[float] = []

    async def note_start(number: int) -> None:
        started.put_nowait(time.perf_counter())

    async with Oxpull(**dict(ox.settings)) as fresh:  # whose tasks are its own
        task = fresh.task(note_start)

        async def once(number: int) -> float:
            called = time.perf_counter()
            await task.enqueue(number)
            return await asyncio.wait_for(started.get(), _PATIENCE_SECONDS) - called

        async with fresh.running(worker=Worker(fresh)):
            await once(0)  # prepares statements, fills caches
            ends_at = time.perf_counter() + within
            while _goes_on(found, samples, ends_at):
                await asyncio.sleep(_PAUSE_SECONDS)
                found.append(await once(len(found)))
    return Latency("enqueue to start, idle worker", found)


async def callbacks(ox: Oxpull, samples: int, within: float) -> Latency:
    """From the end of a batch's last member to the instant at which its callback was enqueued.

    By this machine's clock alone. Ends after so many seconds, as ``starts`` does.
    """
    task, found = note_task(ox), list[float]()
    async with ox.running(worker=Worker(ox)):
        ends_at = time.perf_counter() + within
        while _goes_on(found, samples, ends_at):
            async with ox.batches.create("bench", on_complete=task, on_complete_args=[0]) as batch:
                added = await batch.add_many(task, [(number,) for number in range(_MEMBERS)])
            await batch.wait(_PATIENCE_SECONDS)
            rows = [await ox.get_result(each.id) for each in added]
            ended = max(row.finished_at for row in rows if row.finished_at is not None)
            found.append(max(0.0, (await _completed(ox, batch)) - ended.timestamp()))
    return Latency("last member's end to callback", found)


async def _completed(ox: Oxpull, batch: Batch) -> float:
    row = await ox.store.batches.get(batch.id)
    assert row is not None
    assert row.completed_at is not None
    return row.completed_at.timestamp()


def _goes_on(found: Sequence[float], samples: int, ends_at: float) -> bool:
    if len(found) < _FEWEST:
        return True
    return len(found) < samples and time.perf_counter() < ends_at
