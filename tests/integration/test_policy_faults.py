"""Connections, processes and callers end at every statement of what a duplicate does: nothing is done by half."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from oxpull_async import Oxpull, OxpullError
from tests.eventually import eventually
from tests.integration.cancelling import cancelled_at, ways
from tests.integration.competitor import Competitor, aside
from tests.integration.doomed import Doomed
from tests.integration.faults import Fault, sides
from tests.integration.faults import Moment as FaultMoment
from tests.integration.policy_operations import POLICY_OPERATIONS, PolicyOperation, assert_sound
from tests.integration.policy_tasks import arguments, claimed, reruns, settle, task_of
from tests.integration.shared_database import empty_tables
from tests.integration.test_kills import kill_all, operate
from tests.scale import LEADING, points

MOST = 60

every_operation = pytest.mark.parametrize("operation", POLICY_OPERATIONS, ids=lambda operation: operation.name)

pytestmark = [pytest.mark.timeout(120), pytest.mark.engines(*LEADING)]


async def is_sound(competitor: Competitor) -> None:
    """Soon: a server takes a moment to notice that a client has gone."""

    def look() -> None:
        with competitor.another() as observer:
            assert observer.open_transactions() == 0
            assert_sound(observer)

    await eventually(lambda: aside(look))


@every_operation
async def test_a_call_is_all_or_nothing_wherever_it_is_cancelled(
    migrated_url: str, competitor: Competitor, operation: PolicyOperation
) -> None:
    async with Oxpull(migrated_url, pool_size=2, pool_timeout=5) as ox:
        for kind, moment in ways():
            for at in points(2 * MOST):
                empty_tables(competitor)
                operation.prepare(competitor)

                outcome = await cancelled_at(operation.results(ox), at, moment, kind)

                await is_sound(competitor)
                if outcome.value is not None:
                    operation.assert_done(competitor)
                with anyio.fail_after(10):
                    await operation.results(ox)
                operation.assert_done(competitor)
                if not outcome.struck:
                    assert at > 1
                    break
            else:
                raise AssertionError("it never came to an end")


@every_operation
async def test_an_answer_that_is_lost_leads_to_no_second_row(
    migrated_url: str, competitor: Competitor, operation: PolicyOperation
) -> None:
    for at in points(MOST):
        empty_tables(competitor)
        operation.prepare(competitor)
        fault = Fault(at, "unheard")
        async with Oxpull(migrated_url) as ox:
            fault.install(ox)

            await operation.results(ox)

            await is_sound(competitor)
            operation.assert_done(competitor)
        if not fault.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


@pytest.mark.engines("postgres", "mysql")
@every_operation
async def test_a_call_outlives_the_death_of_every_connection_at_any_statement(
    migrated_url: str, competitor: Competitor, operation: PolicyOperation
) -> None:
    for moment in sides():
        for at in points(MOST):
            empty_tables(competitor)
            operation.prepare(competitor)
            fault = Fault(at, moment, lambda: kill_all(competitor))
            async with Oxpull(migrated_url, pool_size=2) as ox:
                fault.install(ox)

                await operation.results(ox)

                await is_sound(competitor)
                operation.assert_done(competitor)
            if not fault.struck:
                assert at > 1
                break
        else:
            raise AssertionError("it never came to an end")


@every_operation
async def test_a_process_that_is_killed_at_any_statement_leaves_nothing_by_half(
    migrated_url: str, competitor: Competitor, doomed: Doomed, operation: PolicyOperation
) -> None:
    for moment in sides():
        for at in points(MOST):
            empty_tables(competitor)
            operation.prepare(competitor)

            killed = await aside(doomed.run, operate, migrated_url, operation.name, at, moment)

            await is_sound(competitor)
            if not killed:
                assert at > 1
                break
            async with Oxpull(migrated_url) as ox:
                await operation.results(ox)
                operation.assert_done(competitor)
        else:
            raise AssertionError("it never came to an end")


# Exactly one rerun, whatever happens to whoever is about to start it.


async def _by_settling(ox: Oxpull, claim: Any) -> None:
    await settle(ox, claim)


async def _by_sweeping(ox: Oxpull, claim: Any) -> None:
    await ox.unique.sweep()


@pytest.mark.parametrize("start", [_by_settling, _by_sweeping], ids=["settle", "sweep"])
@pytest.mark.parametrize("moment", ["before", "after", "unheard"])
async def test_a_rerun_is_enqueued_once_whatever_happens_to_whoever_does_it(
    migrated_url: str,
    competitor: Competitor,
    start: Callable[[Oxpull, Any], Awaitable[None]],
    moment: FaultMoment,
) -> None:
    class Interrupted(Exception):
        """Stands for whatever ends a process."""

    def interrupt() -> None:
        raise Interrupted

    for at in points(MOST):
        empty_tables(competitor)
        async with Oxpull(migrated_url) as ox:
            claim = await _running_with_rerun(ox)
            if start is _by_sweeping:
                competitor.set_task(claim.id, status="LOST", finished_at=datetime.now(UTC))
            fault = Fault(at, moment, interrupt if moment != "unheard" else lambda: None)
            fault.install(ox)
            try:
                await start(ox, claim)
            except (Interrupted, OxpullError, AssertionError):
                assert fault.struck
        async with Oxpull(migrated_url) as ox:
            await is_at_rest(competitor)
            if competitor.row(claim.id, "status") == ("RUNNING",):
                await settle(ox, claim)
            await ox.unique.sweep()

        assert (arguments(competitor), reruns(competitor)) == ([["a", 2]], [])
        assert_sound(competitor)
        if not fault.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


async def _running_with_rerun(ox: Oxpull) -> Any:
    task = task_of(ox, "rerun")
    await task.enqueue("a", 1)
    claim = await claimed(ox)
    await task.enqueue("a", 2)
    return claim


async def is_at_rest(competitor: Competitor) -> None:
    def look() -> None:
        with competitor.another() as observer:
            assert observer.open_transactions() == 0

    await eventually(lambda: aside(look))
