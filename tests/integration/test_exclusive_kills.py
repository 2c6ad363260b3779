"""Workers that are killed and frozen while they have keys: a witness outside of the database checks their tokens."""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from oxpull_async import Oxpull
from tests.eventually import eventually
from tests.integration.chaos import Crew, crew
from tests.integration.competitor import Competitor, aside
from tests.scale import rounds

pytestmark = pytest.mark.timeout(rounds(small=180, full=1800))

PROCESSES = rounds(small=3, full=4)
TASKS = rounds(small=80, full=10_000)
KEYS = rounds(small=5, full=20)
STRIKES = rounds(small=5, full=120)

APP = """
import asyncio
import fcntl
import os
import time
from pathlib import Path

from oxpull_async import Exclusive, Oxpull

ox = Oxpull(lease=1)
HERE = Path(__file__).parent


def witness(key, fence, what, number):
    \"\"\"Takes down what is written for a key, and refuses a token older than the newest.\"\"\"
    with open(HERE / f"witness-{key}", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        lines = file.read().splitlines()
        newest = max((int(line.split()[0]) for line in lines if line.split()[3] != "refused"), default=0)
        verdict = what if fence >= newest else "refused"
        file.write(f"{fence} {number} {os.getpid()} {verdict}\\n")


@ox.task(exclusive=Exclusive(by=("key",)), takes_context=True, max_attempts=1000)
async def work(context, key, number):
    witness(key, context.fence, "begin", number)
    await asyncio.sleep(0.01)
    witness(key, context.fence, "end", number)


@ox.task(exclusive=Exclusive(by=("key",)), takes_context=True, max_attempts=1000)
def work_in_thread(context, key, number):
    witness(key, context.fence, "begin", number)
    time.sleep(2)
    witness(key, context.fence, "end", number)
"""


class Line(NamedTuple):
    """What the witness took down."""

    fence: int
    number: int
    pid: int
    what: str


def lines_of(folder: Path, key: int) -> list[Line]:
    file = folder / f"witness-{key}"
    text = file.read_text() if file.exists() else ""
    return [Line(int(f), int(n), int(p), what) for f, n, p, what in (line.split() for line in text.splitlines())]


async def all_succeeded(competitor: Competitor) -> None:
    statuses = await aside(competitor.statuses)
    assert set(statuses.values()) == {"SUCCESSFUL"}, len([s for s in statuses.values() if s != "SUCCESSFUL"])


def assert_one_at_a_time(folder: Path, disturbed: set[int]) -> None:
    """``disturbed``: the processes that were killed or frozen. Only those may leave a run open, or be refused."""
    finished: dict[int, int] = defaultdict(int)
    for key in range(KEYS):
        lines = lines_of(folder, key)
        accepted = [line for line in lines if line.what != "refused"]
        assert [line.fence for line in accepted] == sorted(line.fence for line in accepted), f"key {key}"
        begun = [line.fence for line in accepted if line.what == "begin"]
        assert len(set(begun)) == len(begun), f"key {key}: two runs under one token"
        assert {line.pid for line in lines if line.what == "refused"} <= disturbed, f"key {key}"
        for line, following in pairwise(accepted):
            if line.what == "begin" and following != line._replace(what="end"):
                assert line.pid in disturbed, f"key {key}: {following} within {line}"
        for line in accepted:
            finished[line.number] += line.what == "end"
    assert set(finished) >= set(range(TASKS))


async def strike(workers: Crew, disturbed: set[int], kinds: list[str]) -> None:
    """Something happens to one of the workers."""
    kind = random.choice(kinds)
    victim = random.choice(workers.workers)
    disturbed.add(victim.pid)
    if kind == "kill":
        workers.workers.remove(victim)
        victim.signal(signal.SIGKILL)
        await workers.start()
    else:
        victim.signal(signal.SIGSTOP)
        await anyio.sleep(random.uniform(0.2, 2.5))
        victim.signal(signal.SIGCONT)


@pytest.mark.parametrize("kinds", [["kill"], ["kill", "freeze"]], ids=["killed", "killed and frozen"])
@pytest.mark.engines("sqlite", "postgres", "mariadb")
async def test_no_run_of_a_key_is_disturbed_by_another(
    ox: Oxpull, migrated_url: str, competitor: Competitor, tmp_path: Path, kinds: list[str]
):
    work: Any = ox.reference("queue_app.work", max_attempts=1000, takes_context=True)
    disturbed: set[int] = set()
    await work.enqueue_many([(number % KEYS, number) for number in range(TASKS)])

    async with crew(tmp_path, migrated_url, PROCESSES, APP) as workers:
        await eventually(lambda: len(lines_of(tmp_path, 0)) > 2, within=60)
        for _ in range(STRIKES):
            await anyio.sleep(random.uniform(0.05, 0.5))
            await strike(workers, disturbed, kinds)
        await eventually(lambda: all_succeeded(competitor), within=rounds(small=120, full=1200))

    assert_one_at_a_time(tmp_path, disturbed)


@pytest.mark.engines("sqlite", "postgres", "mariadb")
async def test_a_worker_that_was_frozen_beyond_its_lease_is_refused_by_its_token(
    ox: Oxpull, migrated_url: str, tmp_path: Path
):
    work: Any = ox.reference("queue_app.work_in_thread", max_attempts=1000, takes_context=True)
    async with crew(tmp_path, migrated_url, 1, APP) as workers:
        frozen = workers.workers[0]
        result = await work.enqueue(0, 1)
        await eventually(lambda: len(lines_of(tmp_path, 0)) == 1, within=60)
        frozen.signal(signal.SIGSTOP)
        await workers.start()
        await result.wait(timeout=60)

        frozen.signal(signal.SIGCONT)
        await eventually(lambda: lines_of(tmp_path, 0)[-1].what == "refused", within=30)

    first, *second, late = lines_of(tmp_path, 0)
    assert [line.what for line in second] == ["begin", "end"]
    assert all(line.fence > first.fence and line.pid != frozen.pid for line in second)
    assert (late.fence, late.pid) == (first.fence, frozen.pid)
    assert result.attempts == 2
