"""Worker processes that are killed and frozen while they work, and the journal that their tasks keep."""

from __future__ import annotations

import json
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import anyio

from tests.integration.competitor import Competitor, aside
from tests.integration.processes import WorkerProcess, worker_process, write_app

APP = """
import asyncio
import os
from pathlib import Path

from oxpull_async import Oxpull

ox = Oxpull(lease=1)
JOURNAL = Path(__file__).with_name("journal")


def note(context):
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(journal, f"{context.id} {context.attempt}\\n".encode())
    os.close(journal)


@ox.task(takes_context=True)
async def work(context, number, seconds=0.02):
    note(context)
    await asyncio.sleep(seconds)
    return [context.attempt, os.getpid()]


@ox.task(takes_context=True)
def work_in_thread(context, number):
    note(context)
    return [context.attempt, os.getpid()]
"""


class Crew:
    """Worker processes, and what they wrote into their journal."""

    def __init__(self, folder: Path, database: str, stack: AsyncExitStack, source: str = APP) -> None:
        self._folder = folder
        self._database = database
        self._stack = stack
        self.workers: list[WorkerProcess] = []
        write_app(folder, source)

    async def start(self, *options: str) -> WorkerProcess:
        """One more worker."""
        entering = worker_process(self._folder, self._database, "--concurrency", "5", *options, quiet=True)
        worker = await self._stack.enter_async_context(entering)
        self.workers.append(worker)
        return worker

    async def kill_one(self) -> None:
        """Kill one of them at random, and start another in its place."""
        victim = self.workers.pop(random.randrange(len(self.workers)))
        victim.signal(signal.SIGKILL)
        await self.start()

    def journal(self) -> dict[UUID, list[int]]:
        """Which attempts of each task were begun, in that order."""
        found: dict[UUID, list[int]] = defaultdict(list)
        file = self._folder / "journal"
        for line in file.read_text().splitlines() if file.exists() else []:
            task_id, attempt = line.split()
            found[UUID(task_id)].append(int(attempt))
        return found


@asynccontextmanager
async def crew(folder: Path, database: str, count: int, source: str = APP) -> AsyncIterator[Crew]:
    """So many workers, all killed at the end."""
    async with AsyncExitStack() as stack:
        crew = Crew(folder, database, stack, source)
        for _ in range(count):
            await crew.start()
        yield crew


def assert_each_ran_to_its_end(competitor: Competitor, journal: dict[UUID, list[int]], tasks: set[UUID]) -> None:
    """Every task succeeded by its last attempt, no attempt ran twice, and none after the one that was settled."""
    rows = competitor.rows("SELECT id, status, attempts, worker_ids, return_value, locked_by FROM django_ox_oxtask")
    found = {UUID(str(row[0])): row[1:] for row in rows}
    assert tasks <= found.keys()
    for task_id in tasks:
        status, attempts, worker_ids, value, locked_by = found[task_id]
        settled_by = (json.loads(value) if isinstance(value, str) else value)[0]
        claims = json.loads(worker_ids) if isinstance(worker_ids, str) else worker_ids
        begun = journal[task_id]
        assert (status, locked_by, settled_by) == ("SUCCESSFUL", None, attempts), (task_id, found[task_id])
        assert len(claims) == attempts
        assert len(set(begun)) == len(begun), f"an attempt of {task_id} ran twice: {begun}"
        assert max(begun) == attempts, f"{task_id} ran after it was settled: {begun}, settled by {attempts}"


async def no_key_is_held_twice(url: str) -> None:
    """Watch, for as long as it's let, that no two pending rows are of one call."""
    with Competitor(url) as watcher:
        while True:
            doubles = await aside(
                watcher.rows,
                "SELECT task_path, CAST(args AS char(100)), COUNT(*) FROM django_ox_oxtask "
                "WHERE status IN ('READY', 'RUNNING') GROUP BY task_path, CAST(args AS char(100)) HAVING COUNT(*) > 1",
            )
            assert doubles == []
            await anyio.sleep(0.02)
