"""What a worker does: draining a full queue, and starting a task that comes to an idle one."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oxpull_async import Oxpull, Task, Worker
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.latencies import starts
from oxpull_async.benchmark.rows import Prepare, Work, drain, fill
from oxpull_async.drivers._procedure import Procedure

PEER_BATCH = 200
PEER = "peer: pgqueuer, no-op tasks"


def has_peer(engine: str) -> bool:
    """Whether pgqueuer can be measured: the dependency group ``bench`` brings it."""
    return engine == "PostgreSQL" and importlib.util.find_spec("pgqueuer") is not None


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


async def peer_filled(ox: Oxpull, floor: Floor, count: int) -> None:
    """Have so many rows waiting for the peer, in tables of its own beside ours."""
    import asyncpg
    from pgqueuer.queries import Queries

    connection = await asyncpg.connect(ox.settings.database)
    try:
        queries = Queries.from_asyncpg_connection(connection)
        if await connection.fetchval("SELECT to_regclass('pgqueuer')") is None:
            await queries.install()
        await connection.execute("TRUNCATE pgqueuer, pgqueuer_log")
        await queries.enqueue(["do_nothing"] * count, [b"1"] * count, [0] * count)
    finally:
        await connection.close()


def peer_drain(ox: Oxpull, floor: Floor) -> Work:
    """The peer deletes its rows, and keeps a log of them."""

    async def work(count: int) -> None:
        import asyncpg
        from pgqueuer import PgQueuer
        from pgqueuer.types import QueueExecutionMode

        connection = await asyncpg.connect(ox.settings.database)
        try:
            queuer = PgQueuer.from_asyncpg_connection(connection)

            @queuer.entrypoint("do_nothing")
            async def do_nothing(job: Any) -> None: ...

            await queuer.qm.run(batch_size=PEER_BATCH, mode=QueueExecutionMode.drain)
        finally:
            await connection.close()

    return work


async def notes(ox: Oxpull, floor: Floor, scale: float) -> list[str]:
    """What a rate can't say: how long a start takes, and how many statements a drain needs."""
    return [await _statements(ox, floor, max(1, round(1_000 * scale))), await _latency(ox, max(5, round(200 * scale)))]


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


async def _latency(ox: Oxpull, count: int) -> str:
    took = await starts(ox, count, within=float("inf"))
    p50, p95 = took.p50 * 1e3, took.p95 * 1e3
    return f"from the call of enqueue to the start on an idle queue: p50 {p50:.1f} ms, p95 {p95:.1f} ms"
