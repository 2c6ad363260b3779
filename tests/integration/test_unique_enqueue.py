"""Unique enqueue as callers see it: who is created, who is found, and when a key is free again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from oxpull_async import EnqueueResult, InvalidTask, Oxpull, Task, TaskStatus, Unique
from oxpull_async.core.keys import unique_key
from oxpull_async.core.settlements import Settlement
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from tests.integration.competitor import Competitor
from tests.scale import rounds

PATH = "proof.tasks.send"
SETTLED = ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED"]
RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}

AnyTask = Task[Any, Any]


@pytest.fixture
def send(ox: Oxpull) -> AnyTask:
    """A unique task that takes any arguments."""
    return ox.reference(PATH, unique=True)


def key_of(*args: Any, **kwargs: Any) -> str:
    return unique_key("default", PATH, "default", args, kwargs)


async def claim_of(ox: Oxpull, result: EnqueueResult) -> Claim:
    """The row runs now."""
    request = ClaimRequest("worker-1", [PATH], None, 1000, 300, datetime.now(UTC))
    (claim,) = [claim for claim in await ox.store.claim(request) if claim.id == result.id]
    return claim


async def settle(ox: Oxpull, claim: Claim, settlement: Settlement) -> None:
    outcome = Outcome(claim.id, claim.lease_epoch, settlement, "[]", None, datetime.now(UTC))
    assert await ox.store.settle([outcome]) == [claim.id]


async def test_a_new_key_makes_one_row_and_one_lock(ox: Oxpull, send: AnyTask, competitor: Competitor):
    result = await send.enqueue(1, a=2)

    assert result.created
    assert competitor.counts() == (1, 1)
    assert competitor.locks() == {unique_key("default", PATH, "default", [1], {"a": 2}): result.id}
    assert competitor.rows("SELECT task_path, queue_name FROM oxpull_oxpulluniquelock") == [(PATH, "default")]


async def test_a_duplicate_of_a_ready_task_is_that_task(ox: Oxpull, send: AnyTask, competitor: Competitor):
    told: list[UUID] = []
    ox.on("enqueued", lambda result: told.append(result.id))
    first = await send.enqueue(1)

    second = await send.enqueue(1)

    assert (second.id, second.created, second.status) == (first.id, False, TaskStatus.READY)
    assert told == [first.id]
    assert competitor.counts() == (1, 1)


async def test_a_hook_that_fails_takes_nothing_back(ox: Oxpull, send: AnyTask, competitor: Competitor):
    def fail(result: EnqueueResult) -> None:
        raise RuntimeError("a user's mistake")

    ox.on("enqueued", fail)

    assert (await send.enqueue(1)).created
    assert competitor.counts() == (1, 1)


async def test_duplicates_of_a_running_task_are_that_task(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    await claim_of(ox, first)

    again = [await send.enqueue(1) for _ in range(10)]

    assert {(result.id, result.status, result.created) for result in again} == {(first.id, TaskStatus.RUNNING, False)}
    assert competitor.counts() == (1, 1)


# Nothing is known of its worker, and nothing needs to be
async def test_a_running_task_whose_lease_is_over_holds_its_key_until_it_is_reaped(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    first = await send.enqueue(1)
    await claim_of(ox, first)
    competitor.set_task(first.id, locked_at=_long_ago(), lease_expires_at=_long_ago())

    assert (await send.enqueue(1)).id == first.id


@pytest.mark.parametrize("status", ["WAITING", "PARKED"])
async def test_a_holder_in_any_other_status_is_no_holder(
    ox: Oxpull, send: AnyTask, competitor: Competitor, status: str
):
    first = await send.enqueue(1)
    competitor.set_task(first.id, status=status)

    second = await send.enqueue(1)

    assert second.created
    assert second.id != first.id
    assert competitor.counts() == (2, 1)
    assert competitor.locks() == {key_of(1): second.id}


async def test_a_holder_whose_row_is_gone_is_no_holder(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    competitor.delete_task(first.id)

    second = await send.enqueue(1)

    assert second.created
    assert competitor.counts() == (1, 1)
    assert competitor.locks() == {key_of(1): second.id}


@pytest.mark.parametrize("status", SETTLED)
async def test_a_settled_task_frees_its_key_and_can_still_be_read(
    ox: Oxpull, send: AnyTask, competitor: Competitor, status: str
):
    first = await send.enqueue(1)
    competitor.set_task(first.id, status=status, finished_at=datetime.now(UTC))

    second = await send.enqueue(1)

    assert second.created
    assert second.id != first.id
    assert (await ox.get_result(first.id)).status == status
    assert (await first.refresh()).is_finished
    assert competitor.locks() == {key_of(1): second.id}


# The usual way, through an outcome
@pytest.mark.parametrize(
    "settlement", [Settlement.success('"done"'), Settlement.failure(RECORD)], ids=["success", "failure"]
)
async def test_a_task_that_ended_frees_its_key(
    ox: Oxpull, send: AnyTask, competitor: Competitor, settlement: Settlement
):
    first = await send.enqueue(1)
    await settle(ox, await claim_of(ox, first), settlement)

    second = await send.enqueue(1)

    assert second.created
    assert competitor.locks() == {key_of(1): second.id}


async def test_a_duplicate_is_given_the_task_as_it_was_stored(ox: Oxpull, send: AnyTask, competitor: Competitor):
    due = datetime(2030, 1, 1, 12, tzinfo=UTC)
    first = await send.using(run_after=due).enqueue(1, [2], a={"b": None})

    second = await send.using(priority=9, max_attempts=7, run_after=60).enqueue(1, (2,), a={"b": None})

    assert (second.id, second.priority, second.run_after, second.max_attempts) == (first.id, 0, due, 3)
    assert (second.args, second.kwargs) == ([1, [2]], {"a": {"b": None}})
    assert second.enqueued_at == first.enqueued_at
    assert competitor.counts() == (1, 1)


async def test_a_duplicate_changes_nothing_of_a_running_row(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    claim = await claim_of(ox, first)
    before = competitor.row(first.id)

    for duplicate in (send.using(priority=9), send.using(run_after=60), send.using(max_attempts=9)):
        assert not (await duplicate.enqueue(1)).created
    await send.enqueue_unique_many([(1,), (1,)])

    assert competitor.row(first.id) == before
    await settle(ox, claim, Settlement.success(None))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (((1, 2), {}), ((1,), {"b": 2}), False),
        (((1,), {}), ((1,), {"b": None}), False),
        ((("1",), {}), ((1,), {}), False),
        (((1,), {}), ((1.0,), {}), False),
        (((True,), {}), ((1,), {}), False),
        (((0.0,), {}), ((-0.0,), {}), False),
        ((("é",), {}), (("e\u0301",), {}), False),
        (((), {}), ((None,), {}), False),
        ((((1, 2),), {}), (([1, 2],), {}), True),
        ((({"a": 1, "b": 2},), {}), (({"b": 2, "a": 1},), {}), True),
        ((({1: 2},), {}), (({"1": 2},), {}), True),
        (((b"x",), {}), (("x",), {}), True),
        (((), {"a": 1, "b": 2}), ((), {"b": 2, "a": 1}), True),
        ((({"x": {"b": [(1,)], "a": 0}},), {}), (({"x": {"a": 0, "b": [[1]]}},), {}), True),
    ],
    ids=[
        "position or name", "a default left out", "text or number", "int or float", "bool or int", "signed zeros",
        "composed or not", "nothing or None", "tuple or list", "order", "int key or text key", "bytes or text",
        "order of names", "deep",
    ],
)  # fmt: skip
async def test_what_counts_as_the_same_call(
    ox: Oxpull, send: AnyTask, competitor: Competitor, one: Any, other: Any, same: bool
):
    first = await send.enqueue(*one[0], **one[1])
    second = await send.enqueue(*other[0], **other[1])

    assert (first.id == second.id) is same
    assert competitor.counts() == ((1, 1) if same else (2, 2))
    assert set(competitor.locks()) == {key_of(*one[0], **one[1]), key_of(*other[0], **other[1])}


async def test_path_and_queue_and_backend_belong_to_the_key(ox: Oxpull, send: AnyTask, migrated_url: str):
    first = await send.enqueue(1)

    assert (await send.using(queue_name="other").enqueue(1)).id != first.id
    assert (await ox.reference(PATH + "2", unique=True).enqueue(1)).id != first.id
    async with Oxpull(migrated_url, backend_name="other") as other:
        assert (await other.reference(PATH, unique=True).enqueue(1)).id != first.id


async def test_a_task_is_made_unique_by_settings_of_one_oxpull(migrated_url: str):
    async with (
        Oxpull(migrated_url, unique_tasks=[PATH]) as ours,
        Oxpull(migrated_url, backend_name="other") as theirs,
    ):
        first = await ours.reference(PATH).enqueue(1)

        assert (await ours.reference(PATH).enqueue(1)).id == first.id
        ids = {(await theirs.reference(PATH).enqueue(1)).id for _ in range(2)}
        assert len(ids | {first.id}) == 3


async def test_a_call_may_be_unique_although_its_task_is_not(ox: Oxpull, competitor: Competitor):
    plain = ox.reference(PATH)
    first = await plain.enqueue_unique(1)

    assert (await plain.enqueue_unique(1)).id == first.id
    assert (await plain.enqueue(1)).id != first.id
    assert competitor.counts() == (2, 1)


async def test_a_task_that_was_retried_before_the_next_enqueue_still_holds_its_key(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    first = await send.enqueue(1)
    await settle(ox, await claim_of(ox, first), Settlement.failure(RECORD))
    assert await ox.actions.retry(first.id)

    second = await send.enqueue(1)

    assert (second.id, second.created, second.status) == (first.id, False, TaskStatus.READY)
    assert competitor.row(first.id, "lease_epoch", "attempts", "max_attempts") == (2, 1, 2)
    assert competitor.counts() == (1, 1)


async def test_a_task_that_was_retried_after_it_was_superseded_runs_beside_the_newer_one(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    old = await send.enqueue(1)
    await settle(ox, await claim_of(ox, old), Settlement.failure(RECORD))
    new = await send.enqueue(1)
    for number in range(5):
        await send.enqueue(f"other {number}")

    assert await ox.actions.retry(old.id)

    assert competitor.statuses()[old.id] == competitor.statuses()[new.id] == "READY"
    assert (await send.enqueue(1)).id == new.id
    request = ClaimRequest("worker-1", [PATH], None, 100, 300, datetime.now(UTC))
    claims = await ox.store.claim(request)
    assert {claim.id for claim in claims} == set(competitor.statuses())
    await ox.reap()
    await ox.prune(older_than=0)
    assert competitor.locks()[key_of(1)] == new.id
    for claim in claims:
        await settle(ox, claim, Settlement.success(None))
    assert competitor.locks() == {}
    assert (await send.enqueue(1)).created


async def test_what_is_refused_is_refused_before_a_duplicate_is_looked_for(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url, queues=["default"]) as ox:
        send = ox.reference(PATH, unique=True)
        await send.enqueue(1)

        with pytest.raises(InvalidTask, match="'elsewhere'"):
            await send.using(queue_name="elsewhere").enqueue(1)

    assert competitor.counts() == (1, 1)


async def test_a_row_without_a_lock_is_nobodys_holder(ox: Oxpull, send: AnyTask, competitor: Competitor):
    await ox.reference(PATH).enqueue(1)
    first = await send.enqueue(1)

    assert first.created
    assert competitor.counts() == (2, 1)
    assert (await send.enqueue(1)).id == first.id


async def test_of_many_first_calls_at_once_one_creates(ox: Oxpull, send: AnyTask, competitor: Competitor):
    results = await _at_once(8, lambda: send.enqueue(1))

    assert len({result.id for result in results}) == 1
    assert sum(result.created for result in results) == 1
    assert competitor.counts() == (1, 1)


@pytest.mark.parametrize("named", [None, uuid4()], ids=["no task", "a task that never was"])
async def test_a_stray_lock_is_no_obstacle(ox: Oxpull, send: AnyTask, competitor: Competitor, named: UUID | None):
    competitor.insert_lock(key_of(1), named)

    result = await send.enqueue(1)

    assert result.created
    assert competitor.locks() == {key_of(1): result.id}


async def test_a_delayed_task_holds_its_key_from_the_start(ox: Oxpull, send: AnyTask, competitor: Competitor):
    calls = [(number,) for number in range(100)]
    delayed = await send.using(run_after=2).enqueue_many(calls)

    assert [result.id for result in await send.enqueue_many(calls)] == [result.id for result in delayed]
    request = ClaimRequest("worker-1", [PATH], None, 1000, 300, datetime.now(UTC))
    assert list(await ox.store.claim(request)) == []
    later = ClaimRequest("worker-1", [PATH], None, 1000, 300, datetime.now(UTC) + timedelta(seconds=3))
    claims = await ox.store.claim(later)
    assert {claim.id for claim in claims} == {result.id for result in delayed}


async def test_a_task_in_backoff_holds_its_key(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    claim = await claim_of(ox, first)
    due = datetime.now(UTC) + timedelta(hours=1)
    retry = Outcome(claim.id, claim.lease_epoch, Settlement.retry(RECORD, 3600), "[]", due, datetime.now(UTC))
    await ox.store.settle([retry])

    second = await send.enqueue(1)

    assert (second.id, second.run_after, second.attempts) == (first.id, due, 1)
    assert competitor.counts() == (1, 1)


async def test_a_task_whose_last_worker_died_frees_its_key_once_it_is_reaped(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    first = await send.using(max_attempts=1).enqueue(1)
    await claim_of(ox, first)
    competitor.set_task(first.id, locked_at=_long_ago(), lease_expires_at=_long_ago())
    assert (await send.enqueue(1)).id == first.id
    assert list((await ox.reap()).lost) == [first.id]

    second = await send.enqueue(1)

    assert second.created
    assert (await first.refresh()).status is TaskStatus.LOST
    assert competitor.locks() == {key_of(1): second.id}


async def test_a_task_that_is_reaped_with_attempts_left_keeps_its_key_throughout(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    first = await send.enqueue(1)
    await claim_of(ox, first)
    competitor.set_task(first.id, locked_at=_long_ago(), lease_expires_at=_long_ago())

    async with anyio.create_task_group() as group:
        group.start_soon(ox.reap)
        results = await _at_once(20, lambda: send.enqueue(1))

    assert {(result.id, result.created) for result in results} == {(first.id, False)}
    assert competitor.statuses() == {first.id: "READY"}
    assert (await send.enqueue(1)).id == first.id


async def test_a_discarded_task_frees_its_key(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    assert await ox.actions.discard(first.id)

    second = await send.enqueue(1)

    assert second.created
    assert competitor.locks() == {key_of(1): second.id}


async def test_a_pruned_task_frees_its_key(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    competitor.set_task(first.id, status="SUCCESSFUL", finished_at=_long_ago())
    pruned = await ox.prune()

    assert (pruned.tasks, pruned.locks) == (1, 1)
    assert (await send.enqueue(1)).created
    assert competitor.counts() == (1, 1)


async def test_of_fifty_calls_right_after_a_delete_one_creates(ox: Oxpull, send: AnyTask, competitor: Competitor):
    for _ in range(rounds(small=3, full=50)):
        holder = await send.enqueue(1)
        competitor.delete_task(holder.id)

        results = await _at_once(50, lambda: send.enqueue(1))

        (task_id,) = {result.id for result in results}
        assert sum(result.created for result in results) == 1
        assert competitor.locks() == {key_of(1): task_id}
        assert competitor.counts() == (1, 1)


async def test_a_task_that_is_given_back_never_lets_go_of_its_key(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    seen: set[UUID] = set()

    async with anyio.create_task_group() as group:

        async def enqueue() -> None:
            while True:
                seen.add((await send.enqueue(1)).id)

        for _ in range(3):
            group.start_soon(enqueue)
        for _ in range(rounds(small=20, full=500)):
            claim = await claim_of(ox, first)
            assert await ox.store.release([claim], worker_id="worker-1") == [claim.id]
        group.cancel_scope.cancel()

    assert seen == {first.id}
    assert competitor.counts() == (1, 1)


async def test_whatever_becomes_of_a_superseded_task_the_lock_stays_with_the_newer_one(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    old = await send.enqueue(1)
    claim = await claim_of(ox, old)
    competitor.set_task(old.id, status="LOST", finished_at=_long_ago())
    new = await send.enqueue(1)

    await settle(ox, claim, Settlement.success(None))
    assert competitor.locks() == {key_of(1): new.id}
    competitor.set_task(old.id, finished_at=_long_ago())
    assert (await ox.prune()).tasks == 1
    assert competitor.locks() == {key_of(1): new.id}
    assert (await send.enqueue(1)).id == new.id


# A duplicate takes no lock, so it queues behind nobody who has the holder's row
@pytest.mark.engines("postgres", "mysql")
async def test_a_duplicate_does_not_wait_for_whoever_is_writing_the_holder(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    first = await send.enqueue(1)
    competitor.begin()
    competitor.set_task(first.id, priority=1)

    with anyio.fail_after(5):
        results = await _at_once(50, lambda: send.enqueue(1))

    competitor.rollback()
    assert {result.id for result in results} == {first.id}


class TestKeysOfOnesOwn:
    """`Unique(by=…)`: another notion of sameness, in a namespace apart."""

    async def test_only_the_named_parameters_count(self, ox: Oxpull, competitor: Competitor):
        @ox.task(unique=Unique(by=("order_id",)))
        async def remind(order_id: int, text: str = "") -> None: ...

        first = await remind.enqueue(1, "hello")

        assert (await remind.enqueue(1, "goodbye")).id == first.id
        assert (await remind.enqueue(order_id=1)).id == first.id
        assert (await remind.enqueue(2, "hello")).id != first.id
        assert (await remind.enqueue(1, "goodbye")).args == [1, "hello"]

    async def test_a_function_may_say_what_counts(self, ox: Oxpull):
        @ox.task(unique=Unique(by=lambda name, *rest: name.lower()))
        async def greet(name: str, times: int = 1) -> None: ...

        first = await greet.enqueue("Ann", 1)

        assert (await greet.enqueue("ANN", 2)).id == first.id
        assert (await greet.enqueue("Bob", 1)).id != first.id

    async def test_it_never_meets_the_shared_key(self, ox: Oxpull, competitor: Competitor):
        @ox.task(unique=Unique(by=("number",)))
        async def count(number: int) -> None: ...

        mine = await count.enqueue(1)
        shared = await ox.reference(count.path, unique=True).enqueue(1)

        assert mine.id != shared.id
        assert competitor.counts() == (2, 2)

    async def test_a_parameter_that_is_not_there_is_refused(self, ox: Oxpull, competitor: Competitor):
        async def lost(number: int) -> None: ...

        with pytest.raises(InvalidTask, match="nowhere"):
            ox.task(unique=Unique(by=("nowhere",)))(lost)
        assert competitor.counts() == (0, 0)


async def _at_once(count: int, call: Callable[[], Any]) -> list[EnqueueResult]:
    results: list[EnqueueResult] = []

    async def one() -> None:
        results.append(await call())

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)
    return results


def _long_ago() -> datetime:
    return datetime.now(UTC) - timedelta(days=30)
