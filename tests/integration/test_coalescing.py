"""Calls that share a statement: nobody pays for another's cancel, mistake or competitor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from oxpull_async import EnqueueResult, Oxpull, Task, UniqueEnqueueRace
from oxpull_async._ids import new_id
from oxpull_async.core.keys import unique_key
from oxpull_async.enqueueing.coalescer import MAX_BYTES, MAX_ROWS, Coalescer
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.exceptions import ConnectionLost, StoreError
from oxpull_async.ports import Inserted, NewTask, NewUnique
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.scale import rounds

PATH = "proof.tasks.send"
AnyTask = Task[Any, Any]


@pytest.fixture
def send(ox: Oxpull) -> AnyTask:
    """A unique task that takes any arguments."""
    return ox.reference(PATH, unique=True)


def key_of(*args: Any) -> str:
    return unique_key("default", PATH, "default", args, {})


def busy(competitor: Competitor) -> int:
    with competitor.another() as observer:
        return observer.waiting_sessions()


class Gate:
    """A statement that ends when it is told to: each one's items, and what it answers."""

    def __init__(self) -> None:
        self.statements: list[list[int]] = []
        self.began = anyio.Event()
        self.may_end = anyio.Event()
        self.failure: Exception | None = None

    async def run(self, items: Sequence[int]) -> list[int]:
        self.statements.append(list(items))
        self.began.set()
        await self.may_end.wait()
        if self.failure:
            raise self.failure
        return [item * 10 for item in items]


class TestTheCoalescer:
    """By itself, with a statement that does what a test wants."""

    async def test_a_lone_call_runs_at_once_and_by_itself(self):
        gate = Gate()
        gate.may_end.set()
        coalescer = Coalescer(gate.run, lambda item: 1)

        assert [await coalescer.submit(1), await coalescer.submit(2)] == [10, 20]
        assert gate.statements == [[1], [2]]

    async def test_calls_that_come_meanwhile_share_the_next_statement(self):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)
        answers: dict[int, int] = {}

        async def submit(item: int) -> None:
            answers[item] = await coalescer.submit(item)

        async with anyio.create_task_group() as group:
            group.start_soon(submit, 1)
            await gate.began.wait()
            for item in range(2, 6):
                group.start_soon(submit, item)
            await anyio.lowlevel.checkpoint()
            gate.may_end.set()

        assert gate.statements == [[1], [2, 3, 4, 5]]
        assert answers == {item: item * 10 for item in range(1, 6)}

    @pytest.mark.parametrize(("size", "together"), [(1, MAX_ROWS), (MAX_BYTES // 4, 4), (MAX_BYTES * 2, 1)])
    async def test_a_statement_carries_no_more_than_it_may(self, size: int, together: int):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: size)

        async with anyio.create_task_group() as group:
            group.start_soon(coalescer.submit, 0)
            await gate.began.wait()
            for item in range(MAX_ROWS + 50):
                group.start_soon(coalescer.submit, item)
            await anyio.lowlevel.checkpoint()
            gate.may_end.set()

        assert max(map(len, gate.statements)) == together
        assert sum(map(len, gate.statements)) == MAX_ROWS + 51

    async def test_a_failure_is_told_to_everybody_who_shared_in_it_and_to_nobody_else(self):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)
        outcomes: dict[int, object] = {}

        async def submit(item: int) -> None:
            try:
                outcomes[item] = await coalescer.submit(item)
            except StoreError as error:
                outcomes[item] = error

        async with anyio.create_task_group() as group:
            group.start_soon(submit, 1)
            await gate.began.wait()
            group.start_soon(submit, 2)
            group.start_soon(submit, 3)
            await anyio.lowlevel.checkpoint()
            gate.failure = StoreError("no")
            gate.may_end.set()
            await eventually(lambda: len(outcomes) == 3)
            gate.failure = None
            assert await coalescer.submit(4) == 40

        assert {item: type(outcome) for item, outcome in outcomes.items()} == dict.fromkeys((1, 2, 3), StoreError)

    async def test_a_call_cancelled_before_its_statement_began_is_not_in_it(self):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)

        async with anyio.create_task_group() as group:
            group.start_soon(coalescer.submit, 1)
            await gate.began.wait()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await coalescer.submit(2)
            group.start_soon(coalescer.submit, 3)
            await anyio.lowlevel.checkpoint()
            gate.may_end.set()

        assert gate.statements == [[1], [3]]

    async def test_a_call_cancelled_while_its_statement_runs_leaves_the_others_their_answers(self):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)
        first = asyncio.create_task(coalescer.submit(1))
        await gate.began.wait()
        shared = [asyncio.create_task(coalescer.submit(item)) for item in (2, 3, 4)]
        await anyio.lowlevel.checkpoint()
        first.cancel()
        await eventually(lambda: len(gate.statements) == 2)

        shared[1].cancel()
        await anyio.lowlevel.checkpoint()
        gate.may_end.set()

        outcomes = await asyncio.gather(first, *shared, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            asyncio.CancelledError, int, asyncio.CancelledError, int,
        ]  # fmt: skip
        assert gate.statements == [[1], [2, 3, 4]]
        assert await coalescer.submit(5) == 50

    @pytest.mark.parametrize("has_begun", [False, True])
    async def test_a_shared_statement_that_is_cancelled_leaves_each_call_to_go_alone(self, has_begun: bool):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)
        first = asyncio.create_task(coalescer.submit(1))
        await gate.began.wait()
        shared = [asyncio.create_task(coalescer.submit(item)) for item in (2, 3)]
        await anyio.lowlevel.checkpoint()
        first.cancel()
        await anyio.lowlevel.checkpoint()
        assert len(coalescer._flushers) == 1
        await eventually(lambda: len(gate.statements) == 2) if has_begun else None

        for flusher in coalescer._flushers:  # as whoever cancels every task of the loop
            flusher.cancel()

        with anyio.fail_after(5):
            outcomes = await asyncio.gather(first, *shared, return_exceptions=True)
            await coalescer.drain()
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, ConnectionLost, ConnectionLost]
        assert len(gate.statements) == (2 if has_begun else 1)
        gate.may_end.set()
        assert await coalescer.submit(4) == 40

    async def test_draining_waits_for_every_call_that_was_made(self):
        gate = Gate()
        coalescer = Coalescer(gate.run, lambda item: 1)
        calls = [asyncio.create_task(coalescer.submit(item)) for item in range(5)]
        await gate.began.wait()
        draining = asyncio.create_task(coalescer.drain())
        await anyio.lowlevel.checkpoint()
        assert not draining.done()

        gate.may_end.set()
        await draining

        assert [await call for call in calls] == [0, 10, 20, 30, 40]
        await coalescer.drain()


@pytest.mark.parametrize("unique", [True, False], ids=["unique", "plain"])
@pytest.mark.parametrize("written", [True, False], ids=["written", "unwritten"])
async def test_calls_whose_shared_statement_is_cancelled_have_one_row_each(
    ox: Oxpull, competitor: Competitor, unique: bool, written: bool
):
    send = ox.reference(PATH, unique=unique)
    desk = ox._opening.require().desk
    coalescer: Any = desk._unique if unique else desk._plain
    run, met = coalescer._run, anyio.Event()

    async def stopped(items: Sequence[Any]) -> Any:
        if len(items) > 1 and not met.is_set():
            if written:
                await run(items)
            met.set()
            await anyio.sleep_forever()
        return await run(items)

    coalescer._run = stopped
    calls = [asyncio.create_task(send.enqueue(number)) for number in range(12)]
    await met.wait()

    for flusher in coalescer._flushers:  # as whoever cancels every task of the loop
        flusher.cancel()

    with anyio.fail_after(30):
        results = await asyncio.gather(*calls)
    assert [result.created for result in results] == [True] * 12
    assert len({result.id for result in results}) == 12
    assert competitor.counts() == (12, 12 if unique else 0)


async def test_a_crowd_of_duplicates_takes_few_statements(ox: Oxpull, send: AnyTask, competitor: Competitor):
    first = await send.enqueue(1)
    desk = ox._opening.require().desk
    statements = 0
    run = desk._unique._run

    async def counted(items: Any) -> Any:
        nonlocal statements
        statements += 1
        return await run(items)

    desk._unique._run = counted
    calls = rounds(small=20, full=400)
    seen: set[object] = set()

    async def enqueue() -> None:
        for _ in range(calls):
            seen.add((await send.enqueue(1)).id)

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(enqueue)

    # As a count instead of a time
    assert seen == {first.id}
    assert statements <= calls * 50 / 10


async def test_the_same_new_key_many_times_in_one_statement_is_created_once(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    results: list[EnqueueResult] = []

    async def enqueue(argument: object) -> None:
        results.append(await send.enqueue(argument))

    async with anyio.create_task_group() as group:
        group.start_soon(enqueue, "first")
        for number in range(60):
            group.start_soon(enqueue, number % 3)

    created = [result for result in results if result.created]
    assert sorted(str(result.args[0]) for result in created) == ["0", "1", "2", "first"]
    for result in results:
        (creator,) = [made for made in created if made.args == result.args]
        assert result.id == creator.id
        assert result.enqueued_at == creator.enqueued_at
    assert competitor.counts() == (4, 4)


async def test_one_caller_that_is_cancelled_leaves_the_others_alone(ox: Oxpull, send: AnyTask, competitor: Competitor):
    for turn in range(rounds(small=10, full=200)):
        calls = [asyncio.create_task(send.enqueue(turn, number)) for number in range(20)]
        for _ in range(turn % 7 + 1):
            await anyio.lowlevel.checkpoint()
        calls[turn % 20].cancel()

        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        stopped = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)]
        assert stopped in ([], [turn % 20])
        locks = competitor.locks()
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, EnqueueResult):
                assert locks[key_of(turn, number)] == outcome.id

    assert set(competitor.locks().values()) == set(competitor.statuses())


@pytest.mark.parametrize("unique", [False, True], ids=["plain", "unique"])
async def test_a_row_that_the_database_refuses_fails_alone(ox: Oxpull, competitor: Competitor, unique: bool):
    desk = Desk(ox.store)  # past the checks that keep such a row from ever coming here
    outcomes: dict[int, object] = {}

    async def insert(number: int) -> None:
        row = _row("[broken" if number == 13 else f"[{number}]")
        try:
            if unique:
                outcomes[number] = await desk.insert_unique(NewUnique(key_of(number), row), wait_seconds=5)
            else:
                await desk.insert(row)
                outcomes[number] = Inserted()
        except StoreError as error:
            outcomes[number] = error

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(insert, number)

    assert isinstance(outcomes.pop(13), StoreError)
    assert set(map(type, outcomes.values())) == {Inserted}
    assert competitor.counts() == (39, 39 if unique else 0)


async def test_a_competitor_that_outlasts_the_wait_is_told_with_its_cause(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url, unique_wait=0.3) as ox:
        with competitor.holding(key_of(1)):
            began = time.monotonic()
            with pytest.raises(UniqueEnqueueRace, match=f"{PATH}.*enqueue again") as caught:
                await ox.reference(PATH, unique=True).enqueue(1)
            assert time.monotonic() - began < 3

        assert (caught.value.reason, caught.value.retry) == ("lock_wait", "call")
        cause = caught.value.__cause__
        assert cause is not None
        assert cause.__cause__ is not None  # the driver's own
        assert competitor.counts() == (0, 0)
        assert (await ox.reference(PATH, unique=True).enqueue(1)).created


async def test_nobody_among_many_who_want_keys_that_are_held_waits_longer_than_the_bound(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, unique_wait=0.5, pool_size=2) as ox:
        send = ox.reference(PATH, unique=True)
        waited: list[float] = []

        async def enqueue(number: int) -> None:
            began = time.monotonic()
            with pytest.raises(UniqueEnqueueRace, match="enqueue again"):
                await send.enqueue(number)
            waited.append(time.monotonic() - began)

        competitor.begin()
        for number in range(300):
            competitor.insert_unique(key_of(number))
        async with anyio.create_task_group() as group:
            for number in range(300):
                group.start_soon(enqueue, number)
        competitor.rollback()

    assert max(waited) < 2.5  # one after another, each its short try, they would take more than four seconds


# The bound of one call
async def test_a_call_may_say_how_long_it_waits(ox: Oxpull, send: AnyTask, competitor: Competitor):
    with competitor.holding(key_of(1)), anyio.fail_after(4), pytest.raises(UniqueEnqueueRace):
        await send.using(wait=0.2).enqueue(1)


async def test_a_competitor_that_rolls_back_in_time_leaves_the_key_to_us(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    results: list[EnqueueResult] = []

    async def enqueue() -> None:
        results.append(await send.enqueue(1))

    async with anyio.create_task_group() as group:
        with competitor.holding(key_of(1)):
            group.start_soon(enqueue)
            await anyio.sleep(0.15)  # past the bound of a shared statement

    (result,) = results
    assert result.created
    assert competitor.locks() == {key_of(1): result.id}


@pytest.mark.engines("postgres", "mysql")
async def test_who_holds_a_key_may_await_an_enqueue_that_would_share_a_statement_with_those_who_wait_for_it(
    migrated_url: str, competitor: Competitor
):
    """A request holds b and awaits z; here others want b, elsewhere one wants a and z. All of them come through."""
    async with Oxpull(migrated_url) as here, Oxpull(migrated_url) as elsewhere:
        send, theirs = here.reference(PATH, unique=True), elsewhere.reference(PATH, unique=True)
        outcomes: dict[str, Any] = {}

        async def enqueue(name: str, argument: str) -> None:
            outcomes[name] = await send.enqueue(argument)

        async def enqueue_many() -> None:
            outcomes["elsewhere"] = await theirs.enqueue_many([("a",), ("z",)])

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                competitor.begin()
                held = competitor.insert_unique(key_of("b"))
                for number in range(5):
                    group.start_soon(enqueue, f"b{number}", "b")
                await anyio.lowlevel.checkpoint()
                group.start_soon(enqueue_many)
                began = time.monotonic()
                await enqueue("z", "z")
                waited = time.monotonic() - began
                competitor.commit()

    assert waited < 3
    assert {outcomes[f"b{number}"].id for number in range(5)} == {held}
    assert outcomes["elsewhere"][1].id == outcomes["z"].id
    assert competitor.counts() == (3, 3)


@pytest.mark.engines("sqlite")
async def test_who_holds_the_only_writer_and_awaits_an_enqueue_is_told_in_time(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, unique_wait=0.5) as ox:
        with competitor.holding(key_of("b")), anyio.fail_after(10), pytest.raises(UniqueEnqueueRace):
            await ox.reference(PATH, unique=True).enqueue("z")


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("waiters", [1, 30], ids=["one waits for it", "more than connections wait for it"])
async def test_a_busy_key_does_not_stall_other_callers(ox: Oxpull, send: AnyTask, competitor: Competitor, waiters: int):
    results: list[EnqueueResult] = []
    times: list[float] = []

    async def wait_for_the_key() -> None:
        results.append(await send.enqueue("busy"))

    async def enqueue(number: int) -> None:
        began = time.monotonic()
        assert (await send.enqueue(number)).created
        times.append(time.monotonic() - began)

    async with anyio.create_task_group() as group:
        with competitor.holding(key_of("busy")):
            for _ in range(waiters):
                group.start_soon(wait_for_the_key)
            await eventually(lambda: aside(busy, competitor) if waiters == 1 else None)
            with anyio.move_on_after(3):
                for turn in range(10):
                    group.start_soon(wait_for_the_key)  # new callers keep coming, and share in statements
                    async with anyio.create_task_group() as others:
                        for number in range(10):
                            others.start_soon(enqueue, turn * 10 + number)

    assert len(times) == 100, "the others were still waiting after 3 s"
    assert sorted(times)[89] < 0.3
    assert len({result.id for result in results}) == 1
    assert sum(result.created for result in results) == 1


def _row(args: str) -> NewTask:
    return NewTask(
        id=new_id(), task_path=PATH, args=args, kwargs="{}", queue_name="default", priority=0, takes_context=False,
        backend_name="default", run_after=None, max_attempts=3, enqueued_at=datetime.now(UTC),
    )  # fmt: skip
