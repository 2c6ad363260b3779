"""Connections and processes die at every statement of an enqueue: nothing is written by half."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from oxpull_async import ConnectionLost, Oxpull
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.integration.doomed import Doomed, die
from tests.integration.faults import Fault, Moment, sides
from tests.integration.operations import BY_NAME, OPERATIONS, Operation, assert_done, assert_sound, key_of
from tests.integration.policy_operations import BY_NAME as POLICIES_BY_NAME
from tests.integration.shared_database import empty_tables
from tests.scale import LEADING, points, rounds

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)

MOST_STATEMENTS = 40

pytestmark = [pytest.mark.timeout(120), pytest.mark.engines(*LEADING)]


def kill_all(competitor: Competitor) -> None:
    for session in competitor.sessions():
        competitor.kill(session)


async def is_sound(competitor: Competitor) -> None:
    """Soon: a server takes a moment to notice that a client has gone."""

    def look() -> None:
        with competitor.another() as observer:
            assert observer.open_transactions() == 0
            assert_sound(observer)

    await eventually(lambda: aside(look))


@pytest.mark.engines("postgres", "mysql")
@every_operation
async def test_an_enqueue_outlives_the_death_of_every_connection_at_any_statement(
    migrated_url: str, competitor: Competitor, operation: Operation
):
    for moment in sides():
        for at in points(MOST_STATEMENTS):
            empty_tables(competitor)
            operation.prepare(competitor)
            fault = Fault(at, moment, lambda: kill_all(competitor))
            async with Oxpull(migrated_url, pool_size=2) as ox:
                fault.install(ox)

                results = await operation.results(ox)

                await is_sound(competitor)
                assert_done(competitor, operation, results)
                assert {result.id for result in await operation.results(ox)} >= (
                    {result.id for result in results} if operation.unique else set()
                )
                assert_sound(competitor)
            if not fault.struck:
                assert at > 1
                break
        else:
            raise AssertionError("it never came to an end")


# The statement may have been committed, and the answer be lost
@every_operation
async def test_an_answer_that_is_lost_leads_to_no_second_row(
    migrated_url: str, competitor: Competitor, operation: Operation
):
    for at in points(MOST_STATEMENTS):
        empty_tables(competitor)
        operation.prepare(competitor)
        before, _ = competitor.counts()
        fault = Fault(at, "unheard")
        async with Oxpull(migrated_url) as ox:
            fault.install(ox)

            results = await operation.results(ox)

            await is_sound(competitor)
            assert_done(competitor, operation, results)
            assert competitor.counts()[0] == before + len({result.id for result in results if result.created})
            if operation.unique:
                assert {result.id for result in await operation.results(ox)} == {result.id for result in results}
        if not fault.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


@pytest.mark.engines("postgres", "mysql")
@every_operation
async def test_when_connections_keep_dying_it_is_told_and_can_be_repeated(
    migrated_url: str, competitor: Competitor, operation: Operation
):
    operation.prepare(competitor)

    class Always(Fault):
        def _count(self) -> bool:
            return True

    async with Oxpull(migrated_url, pool_size=2) as ox:
        Always(0, "before", lambda: kill_all(competitor)).install(ox)
        with anyio.fail_after(20):
            try:
                await operation.results(ox)
            except ConnectionLost as error:  # or a statement was quicker than the death of its connection
                transient = error.transient
            else:
                transient = True

    assert transient
    await is_sound(competitor)
    async with Oxpull(migrated_url) as ox:
        assert_done(competitor, operation, await operation.results(ox))


@every_operation
async def test_a_process_that_is_killed_at_any_statement_leaves_nothing_by_half(
    migrated_url: str, competitor: Competitor, doomed: Doomed, operation: Operation
):
    for moment in sides():
        for at in points(MOST_STATEMENTS):
            empty_tables(competitor)
            operation.prepare(competitor)

            killed = await aside(doomed.run, operate, migrated_url, operation.name, at, moment)

            await is_sound(competitor)
            if not killed:
                assert at > 1
                break
            async with Oxpull(migrated_url) as ox:
                assert_done(competitor, operation, await operation.results(ox))
        else:
            raise AssertionError("it never came to an end")


# The server may notice late, or never, that nobody waits for its answer any more.
@pytest.mark.engines("postgres", "mysql")
@pytest.mark.parametrize(
    "operation", [BY_NAME["a new key"], BY_NAME["many keys"]], ids=lambda operation: operation.name
)
async def test_a_process_that_is_killed_while_it_waits_for_a_competitor_leaves_nothing_by_half(
    migrated_url: str, competitor: Competitor, doomed: Doomed, operation: Operation
):
    for _ in range(rounds(small=4, full=50)):
        empty_tables(competitor)
        with competitor.holding(key_of("a")):
            child = await aside(doomed.start, operate, migrated_url, operation.name, MOST_STATEMENTS * 1000, "before")
            await eventually(lambda: aside(_someone_waits, competitor))
            os.kill(child, signal.SIGKILL)
            assert await aside(doomed.ended)

        await is_sound(competitor)
        async with Oxpull(migrated_url) as ox:
            assert_done(competitor, operation, await operation.results(ox))


def _someone_waits(competitor: Competitor) -> bool:
    with competitor.another() as observer:
        return observer.waiting_sessions() > 0


async def operate(url: str, operation: str, at: int, moment: Moment) -> None:
    """What a doomed process does: the operation, and at its nth statement it dies."""
    async with Oxpull(url) as ox:
        Fault(at, moment, die).install(ox)
        await (BY_NAME.get(operation) or POLICIES_BY_NAME[operation]).results(ox)
