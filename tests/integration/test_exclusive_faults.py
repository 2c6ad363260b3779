"""Connections that die, and answers that are lost, at every statement of a worker with exclusive tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oxpull_async import ConnectionLost, Exclusive, Oxpull
from tests.conformance.exclusive_rows import counts, run_out
from tests.integration.competitor import Competitor
from tests.integration.faults import Fault, Moment
from tests.integration.shared_database import empty_tables
from tests.scale import rounds

pytestmark = pytest.mark.timeout(180)

MOST_STATEMENTS = 120


async def work_off(ox: Oxpull) -> None:
    """As an operator would start a worker again that couldn't begin."""
    while True:
        try:
            await ox.run_until_idle(concurrency=2)
        except ConnectionLost:
            continue
        return


@pytest.mark.engines("sqlite", "postgres", "mariadb")
@pytest.mark.parametrize("moment", ["before", "after", "unheard"])
async def test_a_fault_at_any_statement_lets_no_two_runs_meet_and_loses_none(
    migrated_url: str, competitor: Competitor, moment: Moment
):
    def lose() -> None:
        if moment != "unheard":
            raise ConnectionLost("the connection has died")

    for at in range(1, MOST_STATEMENTS, rounds(small=3, full=1)):
        empty_tables(competitor)
        inside, most, ran = 0, 0, list[int]()
        async with Oxpull(migrated_url) as ox:

            @ox.task(exclusive=Exclusive(by=()), max_attempts=10, backoff=0)
            async def work(number: int) -> None:
                nonlocal inside, most
                inside += 1
                most = max(inside, most)
                await asyncio.sleep(0)
                inside -= 1
                ran.append(number)  # noqa: B023

            await work.enqueue_many([(number,) for number in range(3)])
            pool: Any = ox.store
            fault = Fault(at, moment, lose)
            fault.install(ox)
            await work_off(ox)
            # What a fault has left to its lease.
            pool._pool = pool._pool._pool
            run_out(competitor)
            competitor.run("UPDATE django_ox_oxtask SET run_after = NULL WHERE status = 'READY'")
            await ox.reap()
            await work_off(ox)

        assert most == 1, f"statement {at}"
        assert set(competitor.statuses().values()) == {"SUCCESSFUL"}, f"statement {at}"
        assert set(ran) == {0, 1, 2}
        assert counts(competitor)[1] == 0, f"statement {at}"
        if not fault.struck:
            assert at > 20
            return
    raise AssertionError("it never came to an end")
