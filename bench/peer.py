"""The peer: pgqueuer, which deletes its rows and keeps a log of them, in tables of its own beside ours."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from oxpull_async import Oxpull
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.rows import Work

NAME: Final = "pgqueuer"
DRAIN: Final = "peer: pgqueuer, no-op tasks"
_BATCH: Final = 200
_PAUSE_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0


def is_here(engine: str) -> bool:
    """Whether it can be measured: the dependency group ``bench`` brings it."""
    return engine == "PostgreSQL" and importlib.util.find_spec("pgqueuer") is not None


async def fill(ox: Oxpull, floor: Floor, count: int) -> None:
    """Have so many rows waiting."""
    async with _connected(ox) as connection:
        queries = await _installed(connection)
        await connection.execute("TRUNCATE pgqueuer, pgqueuer_log")
        await queries.enqueue(["do_nothing"] * count, [b"1"] * count, [0] * count)


def drain(ox: Oxpull, floor: Floor) -> Work:
    """One process, one event loop."""

    async def work(count: int) -> None:
        from pgqueuer import PgQueuer
        from pgqueuer.types import QueueExecutionMode

        async with _connected(ox) as connection:
            queuer = PgQueuer.from_asyncpg_connection(connection)

            @queuer.entrypoint("do_nothing")
            async def do_nothing(job: Any) -> None: ...

            await queuer.qm.run(batch_size=_BATCH, mode=QueueExecutionMode.drain)

    return work


async def starts(ox: Oxpull, samples: int) -> list[float]:
    """From the call of its enqueue to the first line of its entrypoint, in seconds, in a process that does both."""
    from pgqueuer import PgQueuer

    started: asyncio.Queue[float] = asyncio.Queue()
    found: list[float] = []
    async with _connected(ox) as of_caller, _connected(ox) as of_worker:
        queries = await _installed(of_caller)
        queuer = PgQueuer.from_asyncpg_connection(of_worker)

        @queuer.entrypoint("note_start")
        async def note_start(job: Any) -> None:
            started.put_nowait(time.perf_counter())

        running = asyncio.create_task(queuer.qm.run(batch_size=_BATCH))
        await queries.enqueue(["note_start"], [b"1"], [0])
        await asyncio.wait_for(started.get(), _PATIENCE_SECONDS)
        while len(found) < samples:
            await asyncio.sleep(_PAUSE_SECONDS)
            called = time.perf_counter()
            await queries.enqueue(["note_start"], [b"1"], [0])
            found.append(await asyncio.wait_for(started.get(), _PATIENCE_SECONDS) - called)
        queuer.qm.shutdown.set()
        await asyncio.wait_for(running, _PATIENCE_SECONDS)
    return found


@asynccontextmanager
async def _connected(ox: Oxpull) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(ox.settings.database)
    try:
        yield connection
    finally:
        await connection.close()


async def _installed(connection: Any) -> Any:
    from pgqueuer.queries import Queries

    queries = Queries.from_asyncpg_connection(connection)
    if await connection.fetchval("SELECT to_regclass('pgqueuer')") is None:
        await queries.install()
    return queries
