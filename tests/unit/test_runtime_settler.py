"""Outcomes on their way to the database: together, one by one where they must be, and never lost silently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import pytest

from oxpull_async.clock import Clock
from oxpull_async.core.settlements import Settlement
from oxpull_async.exceptions import ConnectionLost, DeadlockDetected, StoreError
from oxpull_async.ports import Outcome
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.exclusive_tasks import ExclusiveTasks
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.runtime.places import QueuePlaces
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.settler import Settler
from tests.eventually import eventually
from tests.log_lines import events
from tests.unit.claims import claim

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


class Writer:
    """Awaits what becomes of each outcome."""

    def __init__(self, settler: Settler) -> None:
        self.settler = settler
        self._answers: dict[Attempt, asyncio.Future[bool]] = {}
        settler.tell(self)

    async def settle(self, outcome: Outcome) -> bool:
        attempt = Attempt(claim(id=outcome.id, lease_epoch=outcome.lease_epoch), outcome=outcome)
        answer = self._answers[attempt] = asyncio.get_running_loop().create_future()
        self.settler.put(attempt)
        return await answer

    def landed(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._answers[attempt].set_result(True)

    def dropped(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._answers[attempt].set_result(False)

    def refused(self, attempt: Attempt, error: StoreError) -> None:
        self._answers[attempt].set_exception(error)


def host_of(store: Store) -> Any:
    """An Oxpull without exclusive tasks."""
    settled, ready = SettleHints(), ReadyHints()
    tasks = ExclusiveTasks({}, lambda: cast("Any", store), settled, ready)
    exclusive = SimpleNamespace(tasks=tasks)
    limits = SimpleNamespace(places=QueuePlaces(lambda: cast("Any", store)))
    return SimpleNamespace(
        store=store, settle_hints=settled, ready_hints=ready, clock=Clock(), exclusive=exclusive, limits=limits
    )


@asynccontextmanager
async def settling(store: Store, patience: float = 60, *, is_open: bool = True) -> AsyncIterator[Writer]:
    wake = asyncio.Event()
    host = host_of(store)
    settler = Settler(host, wake, patience)
    service = Service("settler", settler.turn, wake=wake, longest_backoff=0.01)
    if is_open:
        store.gate.set()
    async with anyio.create_task_group() as group:
        group.start_soon(service.run)
        yield Writer(settler)
        settler.close()
        service.stop()


async def all_of(writer: Writer, outcomes: Sequence[Outcome]) -> list[Any]:
    return await asyncio.gather(*map(writer.settle, outcomes), return_exceptions=True)


async def test_outcomes_that_end_together_are_written_together():
    store, outcomes = Store(), [success() for _ in range(20)]
    async with settling(store) as writer:
        assert await all_of(writer, outcomes) == [True] * 20
    assert store.writes == [[outcome.id for outcome in outcomes]]


async def test_outcomes_that_come_during_a_write_share_the_next_one():
    store, first, others = Store(), success(), [success() for _ in range(5)]
    async with settling(store, is_open=False) as writer, asyncio.TaskGroup() as group:
        group.create_task(writer.settle(first))
        await eventually(lambda: len(store.writes) == 1)
        group.create_task(all_of(writer, others))
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert store.writes == [[first.id], [outcome.id for outcome in others]]


async def test_a_large_outcome_is_not_joined_by_further_ones():
    store, outcomes = Store(), [success("x" * 600_000) for _ in range(4)]
    async with settling(store) as writer:
        await all_of(writer, outcomes)
    assert [len(write) for write in store.writes] == [2, 2]


async def test_one_refused_outcome_does_not_take_the_others_down():
    poison = success()

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if poison in outcomes:
            raise StoreError("invalid input for jsonb")

    async with settling(Store(refuse)) as writer:
        answers = await all_of(writer, [success(), poison, success()])

    assert [answers[0], answers[2]] == [True, True]
    assert isinstance(answers[1], StoreError)


async def test_a_transient_error_is_tried_again():
    tries = iter([DeadlockDetected("victim"), ConnectionLost("gone"), None])

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if error := next(tries):
            raise error

    async with settling(Store(refuse)) as writer:
        assert await all_of(writer, [success(), success()]) == [True, True]


async def test_an_outcome_that_cannot_be_written_for_too_long_is_given_up(caplog: pytest.LogCaptureFixture):
    def refuse(outcomes: Sequence[Outcome]) -> None:
        raise ConnectionLost("the database is away")

    async with settling(Store(refuse), patience=0) as writer:
        assert await writer.settle(success()) is False
    assert "task_outcome_unrecorded" in events(caplog)


async def test_a_lost_lease_is_told_and_hurts_nobody_else(caplog: pytest.LogCaptureFixture):
    outcome = success()
    async with settling(Store(lost={outcome.id})) as writer:
        assert await all_of(writer, [outcome, success()]) == [False, True]
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

    async with settling(Store(refuse, lost={outcome.id}, rows={outcome.id: row})) as writer:
        assert await writer.settle(outcome) is landed


async def test_a_row_that_somebody_keeps_locked_is_written_later_and_holds_nobody_up():
    locked, other = success(), success()
    store = Store(lost={locked.id})
    store.rows[locked.id] = SimpleNamespace(id=locked.id, lease_epoch=1, status="RUNNING", finished_at=None)
    async with settling(store) as writer, asyncio.TaskGroup() as group:
        late = group.create_task(writer.settle(locked))
        assert await writer.settle(other)
        assert not late.done()
        store.lost.clear()
    assert late.result()


async def test_an_error_that_only_one_outcome_meets_keeps_no_other_from_landing():
    unlucky = success()

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if unlucky in outcomes:
            raise DeadlockDetected("victim")

    store = Store(refuse)
    async with settling(store) as writer, asyncio.TaskGroup() as group:
        late = group.create_task(writer.settle(unlucky))
        assert await all_of(writer, [success(), success()]) == [True, True]
        assert not late.done()
        store.refuse = lambda outcomes: None
    assert late.result()


async def test_two_grants_of_one_row_are_never_in_one_write():
    outcome = success()
    newer = replace(outcome, lease_epoch=2)
    store = Store()
    async with settling(store) as writer:
        await all_of(writer, [outcome, newer])
    assert store.writes == [[outcome.id], [outcome.id]]


async def test_a_closed_settler_gives_up_what_comes(caplog: pytest.LogCaptureFixture):
    async with settling(Store(), is_open=False) as writer:
        writer.settler.close()
        assert await writer.settle(success()) is False
    assert events(caplog) == ["task_outcome_unrecorded"]


async def test_waiters_are_told_of_settled_rows_and_workers_of_due_retries():
    settled = success()
    retried = Outcome(uuid4(), 1, Settlement.retry(ERROR, 0), "[]", datetime.now(UTC), NOW)
    host = host_of(store := Store())
    store.gate.set()
    settler = Settler(host, asyncio.Event(), 60)
    writer = Writer(settler)
    with (
        host.settle_hints.subscribed(settled.id) as settle_hint,
        host.settle_hints.subscribed(retried.id) as no_hint,
        host.ready_hints.subscribed() as ready_hint,
    ):
        async with asyncio.TaskGroup() as group:
            group.create_task(all_of(writer, [settled, retried]))
            await asyncio.sleep(0)
            await settler.turn()
        await asyncio.sleep(0)
        assert (settle_hint.is_set(), no_hint.is_set(), ready_hint.is_set()) == (True, False, True)
