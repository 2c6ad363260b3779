"""A caller is cancelled at every await of what a duplicate does: the transaction is as it was before, or done with."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from oxpull_async import Oxpull
from tests.integration.cancelling import Kind, cancelled_at
from tests.integration.competitor import Competitor
from tests.integration.policy_operations import POLICY_OPERATIONS, PolicyOperation, assert_sound
from tests.integration.policy_tasks import reruns, rows, task_of
from tests.integration.shared_database import empty_tables
from tests.joined.calls import own_rows
from tests.joined.handles import Caller
from tests.scale import points

MOST = 60
CALLS = {
    "a debounced repeat": "reschedule",
    "a replacing repeat": "replace",
    "a first call with rerun": "rerun",
    "a repeat of what runs": "rerun",
    "a new hold": "ready",
    "a hold whose task has started": "ready",
}
OPERATIONS = [operation for operation in POLICY_OPERATIONS if operation.name in CALLS]

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("few")]


@pytest.mark.engines("postgres", "sqlite")
@pytest.mark.parametrize("way", ["asyncpg", "aiosqlite", "aiosqlite-manual"], indirect=True)
@pytest.mark.parametrize("kind", ["task", "scope"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_a_cancelled_call_is_undone_and_the_callers_rows_are_kept(
    ox: Oxpull, caller: Caller, competitor: Competitor, kind: Kind, operation: PolicyOperation
) -> None:
    task = task_of(ox, CALLS[operation.name])
    task = task.using(run_after=50) if CALLS[operation.name] == "reschedule" else task
    for at in points(MOST):
        empty_tables(competitor)
        competitor.run("DELETE FROM orders")
        operation.prepare(competitor)
        before = rows(competitor), reruns(competitor)

        await caller.begin()
        await caller.order(1)
        outcome = await cancelled_at(ox.bind(caller.bindable).enqueue(task, "a", 2), at, "waiting", kind)
        await caller.order(2)
        await caller.commit()

        assert own_rows(competitor) == {1, 2}
        assert_sound(competitor)
        if outcome.value is None:
            done = (sorted(operation.expected[0]), operation.expected[1])
            after = rows(competitor), reruns(competitor)
            assert after == before or (sorted(after[0].values()), after[1]) == done
        else:
            operation.assert_done(competitor)
        if not outcome.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


# Where a cancel costs the transaction, it costs all of it.
@pytest.mark.parametrize("way", ["asyncmy", "postgresql+asyncpg-session", "mysql+asyncmy-session"], indirect=True)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_a_cancelled_call_leaves_nothing_once_it_is_rolled_back(
    ox: Oxpull, new_caller: Callable[[], Awaitable[Caller]], competitor: Competitor, operation: PolicyOperation
) -> None:
    task = task_of(ox, CALLS[operation.name])
    for at in points(MOST):
        empty_tables(competitor)
        operation.prepare(competitor)
        before = rows(competitor), reruns(competitor)
        caller = await new_caller()

        await caller.begin()
        await caller.order(1)
        outcome = await cancelled_at(ox.bind(caller.bindable).enqueue(task, "a", 2), at, "waiting", "task")
        with contextlib.suppress(Exception):
            await caller.rollback()
        with contextlib.suppress(Exception):
            await caller.close()

        assert (rows(competitor), reruns(competitor)) == before
        if not outcome.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")
