"""Workers die once members have run and before that is recorded: counts stay sound, and each callback comes once."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from oxpull_async import Batch, Oxpull, Worker
from tests.integration.batching import counts
from tests.integration.competitor import Competitor, aside
from tests.integration.doomed import Doomed, die
from tests.scale import LEADING, rounds

pytestmark = [pytest.mark.timeout(rounds(small=120, full=600)), pytest.mark.engines(*LEADING)]

DEATHS = rounds(small=4, full=200)
MOST_RECORDED = 3
"""So many members at most are settled by a process before it dies."""
MEMBER, DONE, CHEER = "proof.tasks.member", "proof.tasks.done", "proof.tasks.cheer"


def declare(ox: Oxpull, at_the_end: Callable[[], None] = lambda: None) -> Oxpull:
    """The tasks, of which a member calls this when it has done its work."""

    async def member(number: int) -> int:
        await anyio.sleep(0)
        at_the_end()
        return number

    async def done() -> None: ...

    async def cheer() -> None: ...

    for function in (member, done, cheer):
        function.__module__, function.__qualname__ = "proof.tasks", function.__name__
        ox.task(function)
    return ox


async def test_members_that_have_run_unrecorded_run_again_and_are_counted_once(
    migrated_url: str, competitor: Competitor, doomed: Doomed
):
    width = DEATHS * MOST_RECORDED + 1
    async with declare(Oxpull(migrated_url)) as ox:
        async with ox.batches.create("proof", on_complete=DONE, on_success=CHEER) as batch:
            await batch.add_many(ox.reference(MEMBER, max_attempts=1_000), [(number,) for number in range(width)])

        async with anyio.create_task_group() as group:
            group.start_soon(stays_sound, batch, width)
            for _ in range(DEATHS):
                assert await aside(doomed.run, work_and_die, migrated_url, random.randint(1, MOST_RECORDED + 1))
                assert (await batch.progress()).pending > 0
                assert await ox.batches.reconcile() == 0
                await aside(let_leases_run_out, competitor)
                assert (await ox.reap()).requeued
            await ox.run_until_idle()
            await ox.batches.reconcile()
            await batch.wait(timeout=60)
            group.cancel_scope.cancel()

        assert counts(await batch.progress()) == (width, 0, width, 0)
    assert callbacks(competitor) == [CHEER, DONE]
    ((runs,),) = competitor.rows("SELECT SUM(attempts) FROM django_ox_oxtask WHERE task_path = ?", MEMBER)
    assert runs >= width + DEATHS


async def stays_sound(batch: Batch, width: int) -> None:
    """At each look, for as long as it's let."""
    while True:
        progress = await batch.progress()
        assert 0 <= progress.pending <= progress.total == width
        assert (progress.failed, progress.unattributed) == (0, 0)
        assert progress.pending + progress.succeeded == width
        await anyio.sleep(0.01)


async def work_and_die(url: str, last: int) -> None:
    """A worker's life: it dies as its nth member has run."""
    left = last

    def at_the_end() -> None:
        nonlocal left
        left -= 1
        if not left:
            die()

    async with declare(Oxpull(url), at_the_end) as ox:
        await Worker(ox, concurrency=3).run()


def let_leases_run_out(competitor: Competitor) -> None:
    taken: Any = datetime.now(UTC) - timedelta(hours=2)
    over: Any = taken + timedelta(hours=1)
    competitor.run(
        "UPDATE django_ox_oxtask SET locked_at = ?, lease_expires_at = ? WHERE status = 'RUNNING'", taken, over
    )


def callbacks(competitor: Competitor) -> list[str]:
    rows = competitor.rows("SELECT task_path FROM django_ox_oxtask WHERE task_path <> ?", MEMBER)
    return sorted(path for (path,) in rows)
