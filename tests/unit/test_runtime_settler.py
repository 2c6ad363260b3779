"""Outcomes on their way to the database: together, one by one where they must be, and never lost silently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from oxpull_async.clock import Clock
from oxpull_async.core.settlements import Settlement
from oxpull_async.exceptions import ConnectionLost, DeadlockDetected, StoreError
from oxpull_async.ports import Outcome
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.settler import Settler
from tests.eventually import eventually
from tests.log_lines import events

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = {"exception_class_path": "builtins.ValueError", "traceback": ""}


def success(value: str = "1", task_id: UUID | None = None, epoch: int = 1) -> Outcome:
    return Outcome(task_id or uuid4(), epoch, Settlement.success(value), "[]", None, NOW)


@dataclass
class Store:
    """Lands every outcome, unless ``refuse`` raises for it or ``lost`` has its id."""

    refuse: Callable[[Sequence[Outcome]], None] = lambda outcomes: None
    lost: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)
    writes: list[list[UUID]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[UUID]:
        self.writes.append([outcome.id for outcome in outcomes])
        await self.gate.wait()
        self.refuse(outcomes)
        return [outcome.id for outcome in outcomes if outcome.id not in self.lost]

    async def get_tasks(self, task_ids: Sequence[UUID]) -> list[Any]:
        return [self.rows[task_id] for task_id in task_ids if task_id in self.rows]


@asynccontextmanager
async def settling(store: Store, patience: float = 60, *, is_open: bool = True) -> AsyncIterator[Settler]:
    wake = asyncio.Event()
    host: Any = SimpleNamespace(store=store, settle_hints=SettleHints(), ready_hints=ReadyHints(), clock=Clock())
    settler = Settler(host, wake, patience)
    service = Service("settler", settler.turn, wake=wake, longest_backoff=0.01)
    if is_open:
        store.gate.set()
    async with anyio.create_task_group() as group:
        group.start_soon(service.run)
        yield settler
        settler.close()
        service.stop()


async def all_of(settler: Settler, outcomes: Sequence[Outcome]) -> list[Any]:
    return await asyncio.gather(*map(settler.settle, outcomes), return_exceptions=True)


async def test_outcomes_that_end_together_are_written_together():
    store, outcomes = Store(), [success() for _ in range(20)]
    async with settling(store) as settler:
        assert await all_of(settler, outcomes) == [True] * 20
    assert store.writes == [[outcome.id for outcome in outcomes]]


async def test_outcomes_that_come_during_a_write_share_the_next_one():
    store, first, others = Store(), success(), [success() for _ in range(5)]
    async with settling(store, is_open=False) as settler, asyncio.TaskGroup() as group:
        group.create_task(settler.settle(first))
        await eventually(lambda: len(store.writes) == 1)
        group.create_task(all_of(settler, others))
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert store.writes == [[first.id], [outcome.id for outcome in others]]


async def test_a_large_outcome_is_not_joined_by_further_ones():
    store, outcomes = Store(), [success("x" * 600_000) for _ in range(4)]
    async with settling(store) as settler:
        await all_of(settler, outcomes)
    assert [len(write) for write in store.writes] == [2, 2]


async def test_one_refused_outcome_does_not_take_the_others_down():
    poison = success()

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if poison in outcomes:
            raise StoreError("invalid input for jsonb")

    async with settling(Store(refuse)) as settler:
        answers = await all_of(settler, [success(), poison, success()])

    assert [answers[0], answers[2]] == [True, True]
    assert isinstance(answers[1], StoreError)


async def test_a_transient_error_is_tried_again():
    tries = iter([DeadlockDetected("victim"), ConnectionLost("gone"), None])

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if error := next(tries):
            raise error

    async with settling(Store(refuse)) as settler:
        assert await all_of(settler, [success(), success()]) == [True, True]


async def test_an_outcome_that_cannot_be_written_for_too_long_is_given_up(caplog: pytest.LogCaptureFixture):
    def refuse(outcomes: Sequence[Outcome]) -> None:
        raise ConnectionLost("the database is away")

    async with settling(Store(refuse), patience=0) as settler:
        assert await settler.settle(success()) is False
    assert "task_outcome_unrecorded" in events(caplog)


async def test_a_lost_lease_is_told_and_hurts_nobody_else(caplog: pytest.LogCaptureFixture):
    outcome = success()
    async with settling(Store(lost={outcome.id})) as settler:
        assert await all_of(settler, [outcome, success()]) == [False, True]
    assert events(caplog) == ["task_lease_lost"]


@pytest.mark.parametrize("landed", [True, False])
async def test_after_a_lost_reply_the_row_tells_whether_the_outcome_landed(landed: bool):
    outcome = success()
    row = SimpleNamespace(
        id=outcome.id, lease_epoch=1, status="SUCCESSFUL" if landed else "READY", finished_at=NOW, run_after=None
    )
    tries = iter([ConnectionLost("the reply is lost"), None])

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if error := next(tries):
            raise error

    async with settling(Store(refuse, lost={outcome.id}, rows={outcome.id: row})) as settler:
        assert await settler.settle(outcome) is landed


async def test_two_grants_of_one_row_are_never_in_one_write():
    outcome = success()
    newer = replace(outcome, lease_epoch=2)
    store = Store()
    async with settling(store) as settler:
        await all_of(settler, [outcome, newer])
    assert store.writes == [[outcome.id], [outcome.id]]


async def test_a_closed_settler_gives_up_what_comes(caplog: pytest.LogCaptureFixture):
    async with settling(Store(), is_open=False) as settler:
        settler.close()
        assert await settler.settle(success()) is False
    assert events(caplog) == ["task_outcome_unrecorded"]


async def test_waiters_are_told_of_settled_rows_and_workers_of_due_retries():
    settled = success()
    retried = Outcome(uuid4(), 1, Settlement.retry(ERROR, 0), "[]", datetime.now(UTC), NOW)
    host: Any = SimpleNamespace(
        store=(store := Store()), settle_hints=SettleHints(), ready_hints=ReadyHints(), clock=Clock()
    )
    store.gate.set()
    settler = Settler(host, asyncio.Event(), 60)
    with (
        host.settle_hints.subscribed(settled.id) as settle_hint,
        host.settle_hints.subscribed(retried.id) as no_hint,
        host.ready_hints.subscribed() as ready_hint,
    ):
        async with asyncio.TaskGroup() as group:
            group.create_task(all_of(settler, [settled, retried]))
            await asyncio.sleep(0)
            await settler.turn()
        assert (settle_hint.is_set(), no_hint.is_set(), ready_hint.is_set()) == (True, False, True)
