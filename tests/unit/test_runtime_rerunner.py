"""How often reruns are swept for."""

from __future__ import annotations

from oxpull_async import Oxpull, Unique
from oxpull_async.runtime.rerunner import Rerunner


async def test_it_looks_seldom_until_a_task_is_declared_that_is_run_again():
    async with Oxpull.in_memory() as ox:
        await ox.migrate()
        rerunner = Rerunner(ox)

        @ox.task(unique=True)
        async def once() -> None: ...

        assert 10 <= await rerunner.turn() <= 15

        @ox.task(unique=Unique(on_duplicate="rerun"))
        async def again() -> None: ...

        assert 1 <= await rerunner.turn() <= 2
