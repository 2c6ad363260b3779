"""Many callers in many processes want one key, each way: there is one waiting row, and exactly one rerun."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple
from uuid import UUID

import anyio
import pytest

from oxpull_async import DuplicateTask, Oxpull
from oxpull_async.core.settlements import Settlement
from oxpull_async.core.uniqueness import MAX_PASSES
from oxpull_async.ports import ClaimRequest, Outcome
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.integration.policy_tasks import PATH, holds, reruns, rows, task_of
from tests.integration.shared_database import empty_tables
from tests.scale import rounds

ROUNDS = rounds(small=5, full=100)
PROCESSES, CALLERS = 4, 8
WAIT_SECONDS = 60.0

pytestmark = pytest.mark.timeout(rounds(small=120, full=1800))


class Errand(NamedTuple):
    """What every process does in a round."""

    kind: str
    name: str
    start: int
    """The first value; each caller has one of its own."""
    sweeps: bool = False
    """Sweep, instead of enqueueing."""


class Answer(NamedTuple):
    """What a caller got: the row's id, and whether it's new; None where it was refused."""

    value: int
    task_id: UUID | None
    created: bool


class Crowd:
    """Processes that wait for one another before each round."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(PROCESSES)
        pipes = [context.Pipe() for _ in range(PROCESSES)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_serve, args=(url, theirs, self._barrier), daemon=True) for _, theirs in pipes
        ]
        for process in self._processes:
            process.start()

    async def go(self, kind: str, name: str, *, sweeps: bool = False) -> list[Any]:
        """What all callers got. Raises AssertionError where one got an exception."""
        return await aside(self._go, kind, name, sweeps)

    def _go(self, kind: str, name: str, sweeps: bool) -> list[Any]:
        for number, pipe in enumerate(self._pipes):
            pipe.send(Errand(kind, name, number * CALLERS, sweeps))
        answers: list[Any] = []
        for pipe in self._pipes:
            assert pipe.poll(WAIT_SECONDS), "a process gave no answer"
            answers += pipe.recv()
        stumbles = [answer for answer in answers if isinstance(answer, str)]
        assert not stumbles, stumbles[0]
        return answers

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


@pytest.fixture(scope="module")
def crowds() -> Iterator[dict[str, Crowd]]:
    started: dict[str, Crowd] = {}
    yield started
    for crowd in started.values():
        crowd.close()


@pytest.fixture
def crowd(migrated_url: str, crowds: dict[str, Crowd]) -> Crowd:
    if migrated_url not in crowds:
        crowds[migrated_url] = Crowd(migrated_url)
    return crowds[migrated_url]


def _serve(url: str, pipe: Connection, barrier: Barrier) -> None:
    asyncio.run(_run(url, pipe, barrier))


async def _run(url: str, pipe: Connection, barrier: Barrier) -> None:
    async with Oxpull(url, unique_wait=30) as ox:
        while True:
            errand = await asyncio.to_thread(pipe.recv)
            await asyncio.to_thread(barrier.wait, WAIT_SECONDS)
            if errand.sweeps:
                pipe.send([await ox.unique.sweep()])
                continue
            calls = [_call(ox, errand, errand.start + caller) for caller in range(CALLERS)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            pipe.send([repr(answer) if isinstance(answer, BaseException) else answer for answer in answers])


async def _call(ox: Oxpull, errand: Errand, value: int) -> Answer:
    task = task_of(ox, errand.kind)
    if errand.kind == "reschedule":
        task = task.using(run_after=30 + value)
    try:
        result = await task.enqueue(errand.name, value)
    except DuplicateTask as refusal:
        assert refusal.holder_status in ("READY", "RUNNING")
        return Answer(value, None, False)
    return Answer(value, result.id, result.created)


async def claimed(ox: Oxpull) -> Any:
    (claim,) = await ox.store.claim(ClaimRequest("worker-1", [PATH], None, 1, 300, datetime.now(UTC)))
    return claim


def success(claim: Any, *, may_rerun: bool = True) -> list[Outcome]:
    now = datetime.now(UTC)
    return [
        Outcome(claim.id, claim.lease_epoch, Settlement.success(None), "[]", None, now, may_rerun=may_rerun),
    ]


@pytest.mark.parametrize("kind", ["raise", "reschedule", "replace", "rerun", "ready", "window"])
async def test_a_free_key_is_created_once(crowd: Crowd, competitor: Competitor, kind: str) -> None:
    for number in range(ROUNDS):
        empty_tables(competitor)

        answers = await crowd.go(kind, f"n{number}")

        created = [answer for answer in answers if answer.created]
        assert len(created) == 1
        ((task_id, (status, args)),) = rows(competitor).items()
        assert {answer.task_id for answer in answers} - {None} == {task_id}
        assert sum(answer.task_id is None for answer in answers) == (len(answers) - 1 if kind == "raise" else 0)
        assert status == "READY"
        assert kind in ("replace", "rerun") or args[1] == created[0].value
        assert reruns(competitor) == []


async def test_a_stale_hold_is_taken_over_once(crowd: Crowd, competitor: Competitor, ox: Oxpull) -> None:
    for number in range(ROUNDS):
        empty_tables(competitor)
        first = await task_of(ox, "ready").enqueue(f"n{number}", -1)
        await claimed(ox)

        answers = await crowd.go("ready", f"n{number}")

        (created,) = [answer for answer in answers if answer.created]
        assert {answer.task_id for answer in answers} == {created.task_id}
        assert list(holds(competitor).values()) == [created.task_id]
        assert set(rows(competitor)) == {first.id, created.task_id}


# A worker claims the holder amid the crowd that changes it: what has begun is never rewritten.
@pytest.mark.parametrize("kind", ["replace", "rerun"])
async def test_a_claim_amid_the_changes_runs_what_it_was_given(
    crowd: Crowd, competitor: Competitor, ox: Oxpull, kind: str
) -> None:
    for number in range(ROUNDS):
        empty_tables(competitor)
        await task_of(ox, kind).enqueue(f"n{number}", -1)
        race = asyncio.ensure_future(crowd.go(kind, f"n{number}"))
        await asyncio.sleep(0)

        claim = await _claimed_soon(ox)
        await race

        assert rows(competitor) == {claim.id: ("RUNNING", json.loads(claim.args))}
        asked = reruns(competitor)
        assert len(asked) <= (kind == "rerun")
        await landed(ox, success(claim))
        await ox.unique.sweep()
        left = [args for status, args in rows(competitor).values() if status == "READY"]
        assert left == asked
        assert reruns(competitor) == []


async def _claimed_soon(ox: Oxpull) -> Any:
    """SKIP LOCKED passes over a row that is being changed at this moment."""
    while True:
        found = await ox.store.claim(ClaimRequest("worker-1", [PATH], None, 1, 300, datetime.now(UTC)))
        if found:
            return found[0]
        await asyncio.sleep(0.001)


async def landed(ox: Oxpull, outcomes: list[Outcome]) -> None:
    """Again while somebody is writing the row, which a settling passes over."""

    async def settle() -> bool:
        return bool(await ox.store.settle(outcomes))

    await eventually(settle)


# The holder ends amid the crowd that asks for a rerun, told by us or by another program.
@pytest.mark.parametrize("ours", [True, False], ids=["here", "elsewhere"])
async def test_an_end_amid_the_requests_is_followed_by_exactly_one_run(
    crowd: Crowd, competitor: Competitor, ox: Oxpull, ours: bool
) -> None:
    for number in range(ROUNDS):
        empty_tables(competitor)
        await task_of(ox, "rerun").enqueue(f"n{number}", -1)
        claim = await claimed(ox)
        race = asyncio.ensure_future(crowd.go("rerun", f"n{number}"))
        await asyncio.sleep(0.002 * (number % 5))

        await landed(ox, success(claim, may_rerun=ours))
        answers = await race
        await ox.unique.sweep()

        found = rows(competitor)
        waiting = [args for status, args in found.values() if status == "READY"]
        assert len(waiting) == 1
        assert waiting[0][1] in {answer.value for answer in answers}
        assert len(found) == 2
        assert reruns(competitor) == []


async def test_of_many_sweeps_one_enqueues_the_rerun(crowd: Crowd, competitor: Competitor, ox: Oxpull) -> None:
    for number in range(ROUNDS):
        empty_tables(competitor)
        names = [f"n{number}-{index}" for index in range(5)]
        for name in names:
            await task_of(ox, "rerun").enqueue(name, 1)
        claims = await ox.store.claim(ClaimRequest("worker-1", [PATH], None, 10, 300, datetime.now(UTC)))
        for name in names:
            await task_of(ox, "rerun").enqueue(name, 2)
        for claim in claims:
            competitor.set_task(claim.id, status="LOST", finished_at=datetime.now(UTC))

        answers = await crowd.go("rerun", "nobody's", sweeps=True)

        await ox.unique.sweep()
        assert sum(answers) <= len(names)
        waiting = sorted(args for status, args in rows(competitor).values() if status == "READY")
        assert waiting == [[name, 2] for name in names]


async def test_a_debounced_key_waits_no_longer_than_it_may(crowd: Crowd, competitor: Competitor, ox: Oxpull) -> None:
    answers = [answer for _ in range(MAX_PASSES) for answer in await crowd.go("reschedule", "n")]

    (task_id,) = {answer.task_id for answer in answers}
    found = await ox.get_result(task_id)
    assert found.run_after is not None
    assert found.run_after <= found.enqueued_at + timedelta(seconds=100)


@pytest.mark.engines("postgres", "mysql")
async def test_waits_of_every_kind_leave_a_connection_to_those_who_wait_for_nobody(
    migrated_url: str, competitor: Competitor
) -> None:
    async with Oxpull(migrated_url, pool_size=4) as ox, Oxpull(migrated_url) as other:
        plain = ox.reference(PATH)
        kinds = [ox.reference(PATH, unique=True), *(task_of(ox, kind) for kind in ("rerun", "ready", "window"))]
        async with other.transaction() as holding, anyio.create_task_group() as waiting:
            for task in kinds:
                await holding.enqueue_many(task, [(f"busy {n}",) for n in range(4)])
            for task in kinds:
                for n in range(4):
                    waiting.start_soon(task.using(wait=60).enqueue, f"busy {n}")
            await eventually(lambda: competitor.waiting_sessions() >= 2)

            with anyio.fail_after(25):
                for n in range(5):
                    assert (await plain.enqueue(n)).created
                    assert (await plain.enqueue_unique(f"free {n}")).created
            waiting.cancel_scope.cancel()
