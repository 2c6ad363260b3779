"""``python -m bench.fleet``: how much faster two worker processes drain a queue than one, on PostgreSQL.

The workers are there before the work is: the queue is paused while they start and while it is filled. What is timed
lies in the rows, from the first start to the last end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import asyncpg

from bench.engines import engines
from oxpull_async import Oxpull

CONCURRENCY = 200
URL = os.environ.get("OXPULL_DATABASE_URL", "sqlite://")  # the workers' own; this process is told another way
PATIENCE_SECONDS = 300.0

ox = Oxpull(URL)


@ox.task
async def do_nothing(number: int) -> None:
    """As quick as a task can be."""


def main(arguments: list[str] | None = None) -> None:
    """Measure in turn, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--tasks", type=int, default=40_000, help="how many tasks to drain each time (40,000)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds to take medians of (5)")
    options = parser.parse_args(arguments)
    rates = asyncio.run(_measure(options.tasks, options.rounds))
    one, two = statistics.median(rates[1]), statistics.median(rates[2])
    print(f"one process {one:,.0f}/s, two {two:,.0f}/s: {two / one:.2f} times one, on {os.cpu_count()} cores")


async def _measure(tasks: int, rounds: int) -> dict[int, list[float]]:
    (postgres,) = engines("postgres")
    rates: dict[int, list[float]] = {1: [], 2: []}
    async with postgres.database() as url, Oxpull(url) as here:
        await here.migrate()
        connection = await asyncpg.connect(url)
        for number in range(rounds):
            for processes in (1, 2) if number % 2 == 0 else (2, 1):
                rates[processes].append(await _drained(here, connection, url, processes, tasks))
                print(f"round {number + 1}, processes: {processes}: {rates[processes][-1]:,.0f}/s", file=sys.stderr)
        await connection.close()
    return rates


async def _drained(here: Oxpull, connection: asyncpg.Connection, url: str, processes: int, tasks: int) -> float:
    """Tasks per second."""
    await connection.execute("TRUNCATE django_ox_oxtask CASCADE")
    await here.queues.pause("default")
    async with _workers(url, processes):
        await here.enqueue_many(here.reference("bench.fleet.do_nothing"), [(number,) for number in range(tasks)])
        await connection.execute("VACUUM ANALYZE django_ox_oxtask")
        await here.queues.resume("default")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await connection.fetchval("SELECT count(*) FROM django_ox_oxtask WHERE finished_at IS NULL"):
                await asyncio.sleep(0.2)
    began, ended, took_part = await connection.fetchrow(
        "SELECT min(started_at), max(finished_at), count(DISTINCT worker_ids->>0) FROM django_ox_oxtask"
    )
    if took_part != processes:
        raise RuntimeError(f"{took_part} of {processes} processes took part")
    assert isinstance(began, datetime)
    assert isinstance(ended, datetime)
    return tasks / (ended - began).total_seconds()


@asynccontextmanager
async def _workers(url: str, processes: int) -> AsyncIterator[None]:
    """Yields when all of them are at work."""
    with tempfile.TemporaryDirectory() as folder:
        beat = Path(folder) / "beat"
        beats = [beat] if processes == 1 else [beat.with_name(f"beat.{number}") for number in range(processes)]
        supervisor = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "oxpull_async", "worker", "bench.fleet:ox",
            "--concurrency", str(CONCURRENCY), "--processes", str(processes), "--heartbeat-file", str(beat),
            env={**os.environ, "OXPULL_DATABASE_URL": url}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(each.exists() for each in beats):
                    if supervisor.returncode is not None:
                        raise RuntimeError(f"the workers ended at once, with {supervisor.returncode}")
                    await asyncio.sleep(0.1)
            yield
        finally:
            if supervisor.returncode is None:
                supervisor.send_signal(signal.SIGTERM)
                await supervisor.wait()


if __name__ == "__main__":
    main()
