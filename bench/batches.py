"""``python -m bench.batches``: how soon a batch completes, what an unfinished one costs, and how wide one may be.

The rates of adding are rows of ``python -m bench``; these are times, so they have no floor but the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from bench.engines import Engine, engines, opened
from oxpull_async import Batch, Oxpull, Worker
from oxpull_async._ids import new_id
from oxpull_async.benchmark.report import machine
from oxpull_async.benchmark.rows import note_task
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.ports import NewTask
from tests.servers import ServerMissing

T = TypeVar("T")
Line = tuple[str, str]

SEALED, PENDING = 50, 5_000
CHUNK = 5_000
TRACED = 100_000


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; 1 if not one engine could be measured."""
    options = _options(arguments)
    done = 0
    for engine in engines(options.engine):
        try:
            lines = asyncio.run(_measure(engine, options))
        except ServerMissing as missing:
            print(f"{engine.name}: skipped, {missing}", file=sys.stderr)
            continue
        _show(engine, lines)
        done += 1
    return 0 if done else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__)
    parser.add_argument("--engine", choices=["postgres", "sqlite", "mariadb"], help="this one alone; else all")
    parser.add_argument("--batches", type=int, default=200, help="how many completions to time (200)")
    parser.add_argument("--foreign", type=int, default=100_000, help="how many other task rows there are (100,000)")
    parser.add_argument("--members", type=int, default=100_000, help="how wide the wide batch is (100,000)")
    parser.add_argument("--passes", type=int, default=20, help="how many passes to time (20)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the 50 batches of 5,000 to make (1.0)")
    return parser.parse_args(arguments)


async def _measure(engine: Engine, options: argparse.Namespace) -> list[Line]:
    async with opened(engine) as (ox, floor):
        lines = [("server", ox.store.capabilities.server_version), ("machine", machine())]
        lines += await _latency(ox, options.batches)
        await floor.empty()
        lines += await _swept(ox, max(1, options.batches // 10))
        await floor.empty()
        lines += await _passes(ox, options)
        await floor.empty()
        lines += await _wide(ox, options.members)
        return lines


async def _latency(ox: Oxpull, count: int) -> list[Line]:
    """From the instant at which a worker has settled the last member to the one at which the callback was enqueued."""
    task = note_task(ox)
    waits = []
    async with ox.running(worker=Worker(ox)):
        for number in range(count):
            async with ox.batches.create(f"bench {number}", on_complete=task, on_complete_args=[0]) as batch:
                added = await batch.add_many(task, [(n,) for n in range(5)])
            await batch.wait(60)
            rows = [await ox.get_result(each.id) for each in added]
            settled = max(row.finished_at for row in rows if row.finished_at is not None)
            waits.append((await _completed_at(ox, batch) - settled).total_seconds())
    waits.sort()
    return [
        ("last member settled to callback enqueued, p50", _ms(statistics.median(waits))),
        ("last member settled to callback enqueued, p99", _ms(waits[int(len(waits) * 0.99)])),
    ]


async def _swept(ox: Oxpull, count: int) -> list[Line]:
    """The same where no hint comes: the members are settled behind this process's back, and it leads."""
    task, waits = note_task(ox), []
    async with ox.running():
        for number in range(count):
            async with ox.batches.create(f"bench {number}", on_complete=task, on_complete_args=[0]) as batch:
                added = await batch.add_many(task, [(n,) for n in range(5)])
            await asyncio.sleep(random.random())
            settled = datetime.now(UTC)
            await ox.store.discard([each.id for each in added], now=settled)
            await batch.wait(60)
            waits.append((await _completed_at(ox, batch) - settled).total_seconds())
    return [
        ("the same without a hint, by the sweep, p50", _ms(statistics.median(waits))),
        ("the same without a hint, by the sweep, max", _ms(max(waits))),
    ]


async def _completed_at(ox: Oxpull, batch: Batch) -> datetime:
    row = await ox.store.batches.get(batch.id)
    assert row is not None
    assert row.completed_at is not None
    return row.completed_at


async def _passes(ox: Oxpull, options: argparse.Namespace) -> list[Line]:
    """What unfinished batches cost, among few other task rows and among many."""
    task = note_task(ox)
    for number in range(max(1, round(SEALED * options.scale))):
        async with ox.batches.create(f"bench {number}") as batch:
            await batch.add_many(task, ((n,) for n in range(max(1, round(PENDING * options.scale)))))
    first, _ = await timed(ox.batches.reconcile)
    alone = [(await timed(ox.batches.reconcile))[0] for _ in range(options.passes)]
    await foreign_rows(ox, options.foreign)
    among = [(await timed(ox.batches.reconcile))[0] for _ in range(options.passes)]
    what = f"a pass over {SEALED} sealed batches of {PENDING:,} pending members"
    return [
        (f"{what}, the first", _ms(first)),
        (f"{what}, each later one", _ms(statistics.median(alone))),
        (f"the same among {options.foreign:,} other task rows", _ms(statistics.median(among))),
    ]


async def foreign_rows(ox: Oxpull, count: int) -> None:
    """Task rows that have nothing to do with any batch."""

    def rows(start: int) -> Iterator[NewTask]:
        for number in range(start, min(start + CHUNK, count)):
            yield NewTask(
                id=new_id(), task_path="elsewhere.task", args=f"[{number}]", kwargs="{}", queue_name="default",
                priority=0, takes_context=False, backend_name="default", run_after=None, max_attempts=3,
                enqueued_at=datetime.now(UTC),
            )  # fmt: skip

    for start in range(0, count, CHUNK):
        await ox.store.insert_tasks(list(rows(start)))


async def _wide(ox: Oxpull, members: int) -> list[Line]:
    """One batch: filled, looked at, sealed in a caller's transaction that rolls back and in ours, and completed."""
    task, traced = note_task(ox), min(members, TRACED)
    peak = await _peak_of_adding(ox, traced)
    batch = await ox.batches.create("wide")
    adding, added = await timed(lambda: batch.add_many(task, ((n,) for n in range(members))))
    counting, _ = await timed(batch.progress)
    with contextlib.suppress(_RolledBack):
        async with ox.transaction() as tx:
            joined, _ = await timed((await tx.batches.get(batch.id)).seal)
            raise _RolledBack
    sealing, _ = await timed(batch.seal)
    one, _ = await timed(ox.batches.reconcile)
    await _settle(ox, [each.id for each in added])
    completing, completed = await timed(ox.batches.reconcile)
    assert completed == 1
    return [
        (f"peak memory of add_many of {traced:,}", f"{peak / 1_000_000:,.1f} MB"),
        (f"add_many of {members:,}", f"{members / adding:,.0f}/s"),
        ("  progress()", _ms(counting)),
        ("  seal()", _ms(sealing)),
        ("  seal() in a caller's transaction", _ms(joined)),
        ("  a pass while it's pending", _ms(one)),
        ("  the pass that completes it", _ms(completing)),
    ]


class _RolledBack(Exception):
    pass


async def _peak_of_adding(ox: Oxpull, members: int) -> int:
    """In bytes. Traced, which takes several times as long."""
    task, batch = note_task(ox), await ox.batches.create("traced")
    tracemalloc.start()
    await batch.add_many(task, ((n,) for n in range(members)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


async def _settle(ox: Oxpull, ids: list[UUID]) -> None:
    """As an operator would; the quickest way there is."""
    for start in range(0, len(ids), CHUNK):
        await ox.store.discard(ids[start : start + CHUNK], now=datetime.now(UTC))
    assert (await ox.get_result(ids[0])).status is TaskStatus.DISCARDED


async def timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """How many seconds it took, and what came of it."""
    began = time.perf_counter()
    answer = await work()
    return time.perf_counter() - began, answer


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def _show(engine: Engine, lines: list[Line]) -> None:
    print(engine.name, flush=True)
    width = max(len(name) for name, _ in lines)
    for name, figure in lines:
        print(f"  {name.ljust(width)}  {figure}", flush=True)
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
