"""Exclusive tasks under a worker: who runs beside whom, what becomes of the others, and who gets the key when."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from oxpull_async import (
    Exclusive,
    ExclusiveTimeout,
    InvalidTask,
    Oxpull,
    Retry,
    Snooze,
    TaskContext,
    TaskStatus,
    Worker,
)
from tests.conformance.exclusive_rows import counts, run_out
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage
from tests.log_lines import events


@pytest.fixture
async def ox(migrated_url: str) -> AsyncIterator[Oxpull]:
    async with Oxpull(migrated_url) as ox:
        yield ox


class Crowd:
    """Counts who is inside, by key."""

    def __init__(self) -> None:
        self.inside: dict[Any, int] = {}
        self.most: dict[Any, int] = {}
        self.ran: list[Any] = []

    async def visit(self, key: Any, name: Any = None) -> None:
        self.inside[key] = self.inside.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self.inside[key])
        await asyncio.sleep(0.005)
        self.inside[key] -= 1
        self.ran.append(name)


async def test_runs_with_the_same_arguments_keep_one_another_out(ox: Oxpull, competitor: Competitor):
    crowd = Crowd()

    @ox.task(exclusive=True)
    async def load(feed: str, pages: int = 1) -> None:
        await crowd.visit((feed, pages))

    results = [await load.enqueue("a") for _ in range(5)]
    results += [await load.enqueue(feed="a", pages=1), await load.enqueue("a", 2), await load.enqueue("b")]
    assert await ox.run_until_idle() == 8

    assert crowd.most == {("a", 1): 1, ("a", 2): 1, ("b", 1): 1}
    for result in results:
        await result.refresh()
        assert (result.status, result.attempts) == (TaskStatus.SUCCESSFUL, 1)
    assert counts(competitor) == (0, 0)


async def test_runs_with_other_keys_run_side_by_side(ox: Oxpull):
    met = asyncio.Barrier(3)

    @ox.task(exclusive=Exclusive(by=("feed",)), timeout=20)
    async def load(feed: str, page: int) -> None:
        await met.wait()

    results = [await load.enqueue(feed, 1) for feed in ("a", "b", "c")]
    await ox.run_until_idle()

    assert [(await ox.get_result(result.id)).status for result in results] == ["SUCCESSFUL"] * 3


@pytest.mark.parametrize(
    ("terms", "most"),
    [
        (Exclusive(by=("feed",)), {"a": 1, "b": 1}),
        (Exclusive(by=lambda feed, page: feed), {"a": 1, "b": 1}),
        (Exclusive(by=("feed",), limit=2), {"a": 2, "b": 2}),
        (Exclusive(by=()), {"all": 1}),
    ],
    ids=["a parameter", "a function", "two places", "the whole task"],
)
async def test_by_says_what_counts(ox: Oxpull, terms: Exclusive, most: dict[str, int]):
    crowd = Crowd()

    @ox.task(exclusive=terms)
    async def load(feed: str, page: int) -> None:
        await crowd.visit("all" if terms.by == () else feed)

    await load.enqueue_many([(feed, page) for feed in "ab" for page in range(4)])
    await ox.run_until_idle()

    assert crowd.most == most


async def test_those_who_wait_run_in_the_order_of_their_enqueues(ox: Oxpull):
    crowd = Crowd()

    @ox.task(exclusive=Exclusive(by=()))
    async def load(number: int) -> None:
        await crowd.visit("all", number)

    for number in range(12):  # one by one: rows of one call are of the same age, and have no order by it
        await load.enqueue(number)
    await ox.run_until_idle()

    assert crowd.ran == list(range(12))


async def test_tasks_share_keys_with_other_tasks_and_with_blocks_by_name(ox: Oxpull):
    inside = asyncio.Event()
    go_on = asyncio.Event()

    @ox.task(exclusive=Exclusive(by=("feed",), name="feed"))
    async def load(feed: str) -> None:
        inside.set()
        await go_on.wait()

    @ox.task(exclusive=Exclusive(by=("url",), name="feed", on_conflict="skip"))
    async def check(url: str) -> None: ...

    await load.enqueue("https://example.org")
    worker = Worker(ox)
    async with ox.running(worker=worker):
        await asyncio.wait_for(inside.wait(), 10)
        with pytest.raises(ExclusiveTimeout):
            async with ox.exclusive("feed:https://example.org", wait=0):
                pytest.fail("two are inside")
        checked = await check.enqueue("https://example.org")
        await eventually(lambda: has_status(ox, checked.id, "DISCARDED"))
        go_on.set()


async def has_status(ox: Oxpull, task_id: Any, status: str) -> None:
    assert (await ox.get_result(task_id)).status == status


async def test_a_block_keeps_a_task_waiting_until_it_ends(ox: Oxpull):
    @ox.task(exclusive=Exclusive(by=("feed",), name="feed"))
    async def load(feed: str) -> str:
        return "loaded"

    async with ox.running(worker=Worker(ox)):
        async with ox.exclusive("feed:a", lease=60):
            result = await load.enqueue("a")
            await eventually(lambda: is_put_off(ox, result.id))
        assert await result.wait(timeout=10) == "loaded"
    assert result.attempts == 1


async def is_put_off(ox: Oxpull, task_id: Any) -> None:
    row = await ox.store.get_task(task_id)
    assert row is not None
    assert (row.status, row.attempts) == ("READY", 0)
    assert row.run_after is not None
    assert row.run_after > datetime.now(UTC) + timedelta(seconds=30)


async def test_a_run_that_is_to_be_skipped_is_discarded_with_the_reason(ox: Oxpull, caplog: Any):
    caplog.set_level("INFO")
    stage = Stage()

    @ox.task(exclusive=Exclusive(on_conflict="skip"))
    async def load(feed: str) -> None:
        await stage.hold()

    first = await load.enqueue("a")
    async with ox.running(worker=Worker(ox)):
        await stage.reached()
        second = await load.enqueue("a")
        with anyio.fail_after(10):
            while not second.is_finished:
                await second.refresh()
        stage.open()
        await first.wait(timeout=10)

    assert (second.status, second.attempts) == (TaskStatus.DISCARDED, 0)
    (error,) = second.errors
    assert error["exception_class_path"] == "oxpull_async.exceptions.ExclusiveBusy"
    assert "load:a" in error["traceback"]
    assert "task_skipped" in events(caplog)
    assert stage.arrivals == 1


async def test_who_waits_for_a_skipped_run_is_told_at_once(ox: Oxpull):
    stage = Stage()

    @ox.task(exclusive=Exclusive(on_conflict="skip"))
    async def load(feed: str) -> None:
        await stage.hold()

    await load.enqueue("a")
    async with ox.running(worker=Worker(ox)):
        await stage.reached()
        second = await load.enqueue("a")
        with pytest.raises(Exception, match="ExclusiveBusy"):
            await second.wait(timeout=10)
        stage.open()


async def test_a_run_that_is_to_fail_has_an_ordinary_failed_attempt(ox: Oxpull):
    stage = Stage()
    ran = []

    @ox.task(exclusive=Exclusive(by=(), on_conflict="fail"), max_attempts=2, backoff=0.01)
    async def load(name: str) -> None:
        ran.append(name)
        if name == "first":
            await stage.hold()

    await load.enqueue("first")
    async with ox.running(worker=Worker(ox)):
        await stage.reached()
        second = await load.enqueue("second")
        await eventually(lambda: has_status(ox, second.id, "FAILED"))
        stage.open()

    await second.refresh()
    assert second.attempts == 2
    assert [error["exception_class_path"] for error in second.errors] == ["oxpull_async.exceptions.ExclusiveBusy"] * 2
    assert ran == ["first"]


async def test_a_task_knows_its_fencing_token(ox: Oxpull):
    fences: list[Any] = []

    @ox.task(exclusive=Exclusive(by=()), takes_context=True)
    async def load(context: TaskContext, number: int) -> None:
        fences.append(context.fence)

    @ox.task(takes_context=True)
    async def plain(context: TaskContext) -> None:
        assert context.fence is None

    await load.enqueue_many([(number,) for number in range(4)])
    result = await plain.enqueue()
    await ox.run_until_idle()

    assert (await ox.get_result(result.id)).status == "SUCCESSFUL"
    assert None not in fences
    assert fences == sorted(set(fences))
    assert len(fences) == 4


# Whatever the end of an attempt, its key is free


@pytest.mark.parametrize("kind", ["returns", "raises", "retries", "snoozes", "times out", "in a thread"])
async def test_the_key_is_free_after_an_attempt_however_it_ended(ox: Oxpull, competitor: Competitor, kind: str):
    async def load(number: int) -> None:
        match kind:
            case "raises":
                raise ValueError("no")
            case "retries":
                raise Retry(after=60)
            case "snoozes":
                raise Snooze(60)
            case "times out":
                await asyncio.sleep(30)

    def in_a_thread(number: int) -> None: ...

    function: Any = in_a_thread if kind == "in a thread" else load
    options: dict[str, Any] = {"timeout": 0.2} if kind == "times out" else {}
    task: Any = ox.task(exclusive=Exclusive(by=()), max_attempts=1, **options)(function)
    await task.enqueue_many([(number,) for number in range(3)])

    assert await ox.run_until_idle() == 3

    assert counts(competitor) == (0, 0)


async def test_a_worker_that_is_stopped_gives_its_keys_back(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(exclusive=Exclusive(by=("key",)))
    async def load(key: str, number: int) -> None:
        await stage.hold()

    await load.enqueue_many([(key, number) for key in "ab" for number in range(3)])
    async with ox.running(worker=Worker(ox, concurrency=4, shutdown_timeout=0)):
        await eventually(lambda: stage.arrivals == 2 and counts(competitor)[1] == 4)

    assert counts(competitor)[0] == 2  # the places are kept for those first in line
    assert set(competitor.statuses().values()) == {"READY"}
    assert competitor.rows("SELECT SUM(attempts) FROM django_ox_oxtask")[0][0] == 0
    stage.open()
    run_out(competitor)
    competitor.run("UPDATE django_ox_oxtask SET run_after = NULL")
    await ox.run_until_idle()
    assert set(competitor.statuses().values()) == {"SUCCESSFUL"}


async def test_a_task_that_an_operator_cancels_gives_its_key_back(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(exclusive=Exclusive(by=()))
    async def load() -> None:
        await stage.hold()

    result = await load.enqueue()
    async with ox.running(worker=Worker(ox, lease=1)):
        await stage.reached()
        await ox.actions.cancel(result.id)
        await eventually(lambda: counts(competitor) == (0, 0))
        assert stage.cancelled == 1


async def test_a_thread_that_outlives_its_timeout_keeps_its_key_until_the_lease_is_over(
    ox: Oxpull, competitor: Competitor
):
    go_on = threading.Event()

    @ox.task(exclusive=Exclusive(by=()), timeout=0.2, max_attempts=1)
    def load() -> None:
        go_on.wait(20)

    result = await load.enqueue()
    worker = Worker(ox, lease=60, grace=0.1)
    async with ox.running(worker=worker):
        await eventually(lambda: has_status(ox, result.id, "FAILED"))
        assert counts(competitor)[0] == 1
        go_on.set()


async def test_a_run_is_renewed_with_its_lease(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(exclusive=Exclusive(by=()))
    async def load() -> None:
        await stage.hold()

    result = await load.enqueue()
    async with ox.running(worker=Worker(ox, lease=1)):
        await stage.reached()
        await asyncio.sleep(2)
        with pytest.raises(ExclusiveTimeout):
            async with ox.exclusive(load.path, wait=0):
                pytest.fail("two are inside")
        stage.open()
        await result.wait(timeout=10)


async def test_a_run_whose_key_is_lost_is_cancelled(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(exclusive=Exclusive(by=()))
    async def load() -> None:
        await stage.hold()

    await load.enqueue()
    async with ox.running(worker=Worker(ox, lease=1, shutdown_timeout=0)):
        await stage.reached()
        competitor.run("DELETE FROM oxpull_async_mutex_holder")
        await eventually(lambda: stage.cancelled == 1)


async def test_a_key_outlives_a_dead_worker_by_the_lease(ox: Oxpull, migrated_url: str, competitor: Competitor):
    ran = []

    @ox.task(exclusive=Exclusive(by=()))
    async def load(number: int) -> None:
        ran.append(number)

    # A worker that died: its claim is all that is left of it.
    await load.enqueue(1)
    request = claim_request(load.path)
    (claim,) = await ox.exclusive.tasks.claim(request)
    ox.exclusive.tasks.forget(claim)
    await load.enqueue(2)
    assert await ox.run_until_idle() == 0

    run_out(competitor)
    competitor.run("UPDATE django_ox_oxtask SET run_after = NULL")
    assert await ox.run_until_idle() == 1

    assert ran == [2]


def claim_request(path: str) -> Any:
    from tests.conformance.rows import request

    return request(task_paths=[path])


# With everything else


async def test_plain_tasks_run_beside_exclusive_ones(ox: Oxpull):
    crowd = Crowd()

    @ox.task(exclusive=Exclusive(by=()))
    async def load(number: int) -> None:
        await crowd.visit("load")

    @ox.task
    async def plain(number: int) -> None:
        crowd.ran.append("plain")

    await load.enqueue_many([(number,) for number in range(10)])
    await plain.enqueue_many([(number,) for number in range(10)])
    assert await ox.run_until_idle(concurrency=4) == 20

    assert crowd.most == {"load": 1}
    assert crowd.ran.count("plain") == 10


async def test_a_long_line_of_one_key_keeps_nobody_else_waiting(ox: Oxpull):
    stage = Stage()
    ran = []

    @ox.task(exclusive=Exclusive(by=("key",)))
    async def load(key: str, number: int) -> None:
        if key == "slow":
            await stage.hold()
        ran.append(key)

    await load.enqueue_many([("slow", number) for number in range(250)])
    other = await load.enqueue("other", 0)
    async with ox.running(worker=Worker(ox, concurrency=2, shutdown_timeout=0)):
        await other.wait(timeout=20)
    assert ran == ["other"]


async def test_rows_that_others_have_enqueued_are_covered_too(ox: Oxpull, competitor: Competitor):
    crowd = Crowd()

    @ox.task(exclusive=Exclusive(by=("feed",)))
    async def load(feed: str) -> None:
        await crowd.visit(feed)

    for _ in range(4):
        competitor.insert_task(task_path=load.path, args='["a"]')
    assert await ox.run_until_idle() == 4

    assert crowd.most == {"a": 1}


async def test_a_key_that_can_t_be_computed_is_a_failed_attempt(ox: Oxpull, competitor: Competitor):
    def by(number: int) -> str:
        raise KeyError("no key for this")

    @ox.task(exclusive=Exclusive(by=by), max_attempts=1)
    async def load(number: int) -> None:
        raise AssertionError("it has no key")

    result = await load.enqueue(1)
    misfit = competitor.insert_task(task_path=load.path, args="[1, 2, 3]", max_attempts=1)
    await ox.run_until_idle()

    await result.refresh()
    assert result.status == TaskStatus.FAILED
    assert "no key for this" in result.errors[0]["traceback"]
    assert (await ox.get_result(misfit)).errors[0]["exception_class_path"] == "builtins.TypeError"
    assert counts(competitor) == (0, 0)


async def test_a_unique_task_may_be_exclusive_too(ox: Oxpull):
    crowd = Crowd()

    @ox.task(unique=True, exclusive=Exclusive(by=("feed",)))
    async def load(feed: str, page: int) -> None:
        await crowd.visit(feed, page)

    for page in (1, 1, 2):
        await load.enqueue("a", page)
    assert await ox.run_until_idle() == 2

    assert crowd.most == {"a": 1}


async def test_an_exclusive_batch_is_completed(ox: Oxpull):
    @ox.task(exclusive=Exclusive(by=(), on_conflict="skip"))
    async def load(number: int) -> None:
        await asyncio.sleep(0.01)

    done = []

    @ox.task
    async def summarize() -> None:
        done.append(True)

    async with ox.batches.create("all", on_complete=summarize) as batch:
        await batch.add_many(load, [(number,) for number in range(5)])
    async with ox.running(worker=Worker(ox)):
        await eventually(lambda: done == [True], within=20)


# Declarations


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    "terms",
    [
        lambda: Exclusive(by="feed"),  # type: ignore[arg-type]
        lambda: Exclusive(by=(1,)),  # type: ignore[arg-type]
        lambda: Exclusive(limit=0),
        lambda: Exclusive(limit=True),
        lambda: Exclusive(lease=0.5),
        lambda: Exclusive(lease="1"),  # type: ignore[arg-type]
        lambda: Exclusive(on_conflict="wait for it"),  # type: ignore[arg-type]
        lambda: Exclusive(name=1),  # type: ignore[arg-type]
    ],
)
def test_terms_that_make_no_sense_are_refused_at_once(terms: Any):
    with pytest.raises(InvalidTask):
        terms()


@pytest.mark.parametrize("value", [1, "yes", Exclusive])
def test_exclusive_is_a_truth_or_terms(value: Any):
    with pytest.raises(InvalidTask, match="exclusive takes"):

        @Oxpull("sqlite:///:memory:").task(exclusive=value)
        async def load() -> None: ...


def test_a_parameter_that_isn_t_there_is_refused_at_the_declaration():
    with pytest.raises(InvalidTask, match="names no parameter url"):

        @Oxpull("sqlite:///:memory:").task(exclusive=Exclusive(by=("url",)))
        async def load(feed: str) -> None: ...


async def test_pruning_forgets_keys_that_nobody_has_used_for_a_day(ox: Oxpull, competitor: Competitor):
    for name in ("old", "new"):
        async with ox.exclusive(name):
            pass
    long_ago = datetime.now(UTC) - timedelta(days=2)
    competitor.run("UPDATE oxpull_async_mutex SET used_at = ? WHERE name = 'old'", long_ago)

    assert (await ox.prune()).keys == 1

    assert competitor.rows("SELECT name FROM oxpull_async_mutex") == [("new",)]
