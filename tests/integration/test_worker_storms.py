"""Everybody at the same rows at once, and workers that go on for long."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import Oxpull, SerializationFailure, TaskStatus, Worker
from oxpull_async.ports import Claim, ClaimRequest
from tests.conformance.rows import now, success
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.scale import rounds

ROWS = 60
TURNS = rounds(small=60, full=1_000)
PATH = "storm.tasks.work"


class Storm:
    """What may happen to rows, each deed at half of them."""

    def __init__(self, ox: Oxpull) -> None:
        self._task = ox.reference(PATH, unique=True, max_attempts=1000)
        self.deeds = [
            self.claim, self.renew, self.settle, self.release, self.operate, self.keep_house, self.enqueue,
        ]  # fmt: skip
        self._ids: list[UUID] = []
        self._held: list[Claim] = []

    async def claim(self, ox: Oxpull) -> None:
        request = ClaimRequest(worker_id="stormy", task_paths=[PATH], queues=None, limit=20, lease_seconds=1, now=now())
        # With snapshot isolation MariaDB may refuse a locking read (1020) and undo the claim; a worker looks again.
        with contextlib.suppress(SerializationFailure):
            self._held.extend(await ox.store.claim(request))
        del self._held[:-200]

    async def renew(self, ox: Oxpull) -> None:
        await ox.store.renew(some(self._held), worker_id="stormy", lease_seconds=1)

    async def settle(self, ox: Oxpull) -> None:
        await ox.store.settle([success(claim) for claim in self._some_held()])

    async def release(self, ox: Oxpull) -> None:
        await ox.store.release(self._some_held(), worker_id="stormy")

    async def operate(self, ox: Oxpull) -> None:
        actions = ox.actions
        ways = [actions.retry_many, actions.discard_many, actions.cancel_many, actions.expire_lease_many]
        await random.choice(ways)(some(self._ids))

    async def keep_house(self, ox: Oxpull) -> None:
        await ox.store.reap(lease_seconds=1, limit=100, now=now())
        await ox.store.retry(some(self._ids))
        await ox.store.prune(statuses=[], finished_before=now(), limit=100)

    async def enqueue(self, ox: Oxpull) -> None:
        found = await ox.enqueue_many(self._task, [(number,) for number in random.sample(range(ROWS), 10)])
        self._ids.extend(result.id for result in found if result.created)

    def _some_held(self) -> list[Claim]:
        return list({claim.id: claim for claim in some(self._held)}.values())


@pytest.mark.timeout(rounds(small=120, full=1_800))
async def test_renewals_outcomes_reapers_and_operators_at_the_same_rows_do_not_deadlock(
    ox: Oxpull, migrated_url: str, competitor: Competitor
):
    """Each of two crews has connections of its own; whatever reaches one of them as an error fails the test."""
    storm = Storm(ox)

    async def rage(ox: Oxpull, deed: Callable[[Oxpull], Awaitable[None]]) -> None:
        for _ in range(TURNS):
            await deed(ox)

    async with Oxpull(migrated_url) as other, anyio.create_task_group() as group:
        for crew in (ox, other):
            for deed in storm.deeds:
                group.start_soon(rage, crew, deed)

    holders = list(competitor.locks().values())
    assert len(set(holders)) == len(holders) > 0


def some(items: Sequence[Any]) -> list[Any]:
    """Half of them, in no order."""
    return random.sample(items, len(items) // 2)


@pytest.mark.engines("sqlite")
@pytest.mark.timeout(rounds(small=180, full=1_800))
async def test_a_worker_s_memory_does_not_grow_with_the_tasks_it_has_run(ox: Oxpull):
    chunk = rounds(small=10_000, full=200_000) // 10
    objects: list[int] = []
    kilobytes: list[int] = []

    @ox.task
    async def task(number: int) -> int:
        return number

    async with ox.running(worker=Worker(ox, concurrency=50, poll_interval=0.05)):
        for _ in range(10):
            await task.enqueue_many([(number,) for number in range(chunk)])
            await eventually(lambda: _is_idle(ox), within=600)
            gc.collect()
            objects.append(len(gc.get_objects()))
            kilobytes.append(_resident_kilobytes())

    assert (objects[-1] - objects[1]) / (8 * chunk) < 0.05, objects
    assert kilobytes[-1] - kilobytes[1] < 20_000, kilobytes


async def _is_idle(ox: Oxpull) -> None:
    stats = await ox.stats.queue("default")
    assert stats.counts[TaskStatus.READY] + stats.counts[TaskStatus.RUNNING] == 0


def _resident_kilobytes() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4 if statm.exists() else 0
