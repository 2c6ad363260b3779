"""How long a batch waits where no hint comes and leaders fail, by the loop's own schedule: real loops, virtual time."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from oxpull_async.runtime import leader, reconciler, reconciling
from tests.unit.sealed_batches import CALLBACK, Process, World, now
from tests.unit.virtual_time import VirtualTime, run_in_virtual_time

STATEMENTS = 0.25
"""What ten statements and more take in this world, in seconds."""
SWEPT = 1.0 + STATEMENTS
TAKEN_OVER = 11.0 + STATEMENTS
FOLLOWED = 15.0 + STATEMENTS


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (leader, reconciler, reconciling):
        monkeypatch.setattr(module, "time", VirtualTime)


@pytest.mark.parametrize("processes", [1, 4])
def test_without_any_hint_every_batch_is_looked_at_each_second(processes: int):
    async def scene() -> None:
        world, fleet = World(), []
        async with AsyncExitStack() as stack:
            for _ in range(processes):
                fleet.append(process := Process(world))
                await stack.enter_async_context(process.loop.held())
            await asyncio.sleep(30)
            batches = [world.seal() for _ in range(40)]
            await asyncio.gather(*[world.settle(batch, within=20) for batch in batches])
            await asyncio.sleep(20)

        assert max(world.waits()) < SWEPT
        looks = sorted(instant for process in fleet for instant in process.statements.looked_at)
        assert max(later - earlier for earlier, later in pairwise(looks)) < SWEPT

    run_in_virtual_time(scene())


@pytest.mark.parametrize("set_back", [0.0, 3600.0], ids=["its clock is right", "the clock is set back"])
def test_another_leads_soon_after_the_leader_has_died(set_back: float):
    async def scene() -> None:
        world = World()
        first, second = Process(world), Process(world)
        async with first.loop.held():
            await asyncio.sleep(random.uniform(1, 20))
            async with second.loop.held():
                await asyncio.sleep(random.uniform(1, 60))
                assert (first.leader.leads, second.leader.leads) == (True, False)
                batch = world.seal()

                first.die()
                world.clock_ahead -= set_back
                died = now()
                await world.settle(batch, within=0.1)

                while not second.leader.leads:
                    await asyncio.sleep(0.01)
                assert now() - died < TAKEN_OVER
                await asyncio.sleep(SWEPT)
                assert max(world.waits()) < TAKEN_OVER

    for _ in range(20):
        run_in_virtual_time(scene())


def test_a_clock_that_is_set_back_stops_nobody_who_leads():
    async def scene() -> None:
        world = World()
        async with Process(world).loop.held(), Process(world).loop.held():
            await asyncio.sleep(random.uniform(1, 20))
            batches = [world.seal() for _ in range(20)]
            world.clock_ahead -= 3600
            await asyncio.gather(*[world.settle(batch, within=10) for batch in batches])
            await asyncio.sleep(2)

        assert max(world.waits()) < SWEPT

    for _ in range(5):
        run_in_virtual_time(scene())


def test_a_batch_whose_callback_the_leader_does_not_know_waits_no_longer():
    async def scene() -> None:
        world = World()
        ignorant, knowing = Process(world), Process(world, knows=[CALLBACK])
        async with ignorant.loop.held():
            await asyncio.sleep(5)
            async with knowing.loop.held():
                await asyncio.sleep(5)
                batches = [world.seal(callback=CALLBACK) for _ in range(20)]
                await asyncio.gather(*[world.settle(batch, within=10) for batch in batches])
                await asyncio.sleep(2)

        assert max(world.waits()) < SWEPT

    run_in_virtual_time(scene())


def test_who_follows_sweeps_even_where_the_leader_does_nothing():
    async def scene() -> None:
        world = World()
        follower = Process(world)
        async with follower.loop.held():
            batches = []
            for _ in range(100):
                world.roles[follower.leader._role()] = "idle", now() + 9
                await asyncio.sleep(random.uniform(0, 2))
                batches.append(world.seal())
                await world.settle(batches[-1], within=0.1)
            assert not follower.leader.leads
            for _ in range(20):
                world.roles[follower.leader._role()] = "idle", now() + 9
                await asyncio.sleep(1)

        assert max(world.waits()) < FOLLOWED

    run_in_virtual_time(scene())


def test_where_no_batch_is_sealed_few_statements_are_sent():
    """The figures of docs/explanation/batch-protocol.md, without what the look for reruns adds to them."""

    async def scene() -> None:
        world = World()
        fleet = [Process(world) for _ in range(4)]
        async with AsyncExitStack() as stack:
            for process in fleet:
                await stack.enter_async_context(process.loop.held())
            await asyncio.sleep(60)
            (first,) = [process for process in fleet if process.leader.leads]
            before = {process.name: process.statements.count for process in fleet}
            minutes = 10
            await asyncio.sleep(60 * minutes)
            assert first.leader.leads

        rates = {process.name: (process.statements.count - before[process.name]) / minutes for process in fleet}
        assert 60 < rates.pop(first.name) < 78
        assert max(rates.values()) < 15

    run_in_virtual_time(scene())
