"""Sixty-four racers in four processes want one key: there is one row, and everybody is told of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import EnqueueResult, Oxpull
from oxpull_async.core.settlements import Settlement
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from tests.integration.competitor import Competitor, aside
from tests.integration.racers import PATH, Finish, Racers, Way, key_of
from tests.scale import rounds

ROUNDS = rounds(small=6, full=200)
RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}

pytestmark = pytest.mark.timeout(rounds(small=60, full=1200))


def only_one(finishes: list[Finish]) -> UUID:
    """The id that everybody got, one of them as its creator."""
    (task_id,) = {finish.task_id for finish in finishes}
    assert sum(finish.created for finish in finishes) == 1
    return task_id


def pending_rows(competitor: Competitor, number: int) -> dict[UUID, str]:
    """The pending rows of the round's calls, by id."""
    rows = competitor.rows(
        "SELECT id, args, status FROM django_ox_oxtask WHERE task_path = ? AND status IN ('READY', 'RUNNING')", PATH
    )
    return {UUID(str(id)): status for id, args, status in rows if args in (f"[{number}]", [number])}


@pytest.mark.parametrize(
    "ways",
    [("alone",), ("guessing",), ("together",), ("alone", "guessing", "together", "many")],
    ids=["alone", "guessing", "together", "mixed"],
)
async def test_a_free_key_is_created_once_and_everybody_gets_it(
    racers: Racers, competitor: Competitor, ways: tuple[Way, ...]
):
    for number in range(ROUNDS):
        finishes = await racers.race(number, ways=ways)

        assert len(finishes) == 64
        task_id = only_one(finishes)
        assert competitor.locks()[key_of(number)] == task_id
        assert list(pending_rows(competitor, number)) == [task_id]

    tasks, locks = competitor.counts()
    assert tasks == locks


@pytest.mark.parametrize("status", ["FAILED", "SUCCESSFUL", "gone", "named by nothing"])
async def test_a_stale_key_is_taken_over_once_and_everybody_gets_the_new_task(
    racers: Racers, competitor: Competitor, status: str
):
    for number in range(ROUNDS):
        if status == "named by nothing":
            competitor.insert_lock(key_of(number), None)
        else:
            old = competitor.insert_unique(key_of(number), status=status[:10], task_path=PATH)
            if status == "gone":
                competitor.delete_task(old)

        finishes = await racers.race(number)

        task_id = only_one(finishes)
        assert competitor.locks()[key_of(number)] == task_id
        assert list(pending_rows(competitor, number)) == [task_id]


async def amid(race: Awaitable[list[Finish]], deed: Callable[[], Awaitable[Any]]) -> tuple[list[Finish], Any]:
    """Do something at a random moment of a race."""
    outcome: list[Any] = []

    async def do() -> None:
        await anyio.sleep(random.uniform(0, 0.02))
        outcome.append(await deed())

    async with anyio.create_task_group() as group:
        group.start_soon(do)
        finishes = await race
    return finishes, outcome[0]


async def claimed(ox: Oxpull, number: int) -> Claim:
    await ox.reference(PATH, unique=True).enqueue(number)
    (claim,) = await ox.store.claim(ClaimRequest("worker-1", [PATH], None, 1, 300, datetime.now(UTC)))
    return claim


def outcome_of(claim: Claim, settlement: Settlement) -> list[Outcome]:
    return [Outcome(claim.id, claim.lease_epoch, settlement, "[]", None, datetime.now(UTC))]


def holder_then_newer(finishes: list[Finish], holder: UUID) -> UUID | None:
    """Everybody got the holder or one and the same newer task, which one of them created; None if nobody did."""
    newer = {finish.task_id for finish in finishes} - {holder}
    assert len(newer) <= 1
    assert sum(finish.created for finish in finishes) == len(newer)
    return newer.pop() if newer else None


@pytest.mark.parametrize(
    "settlement", [Settlement.success(None), Settlement.failure(RECORD)], ids=["success", "failure"]
)
async def test_a_holder_that_ends_amid_the_race_has_at_most_one_successor(
    ox: Oxpull, racers: Racers, competitor: Competitor, settlement: Settlement
):
    for number in range(ROUNDS):
        claim = await claimed(ox, number)

        finishes, landed = await amid(racers.race(number), partial(ox.store.settle, outcome_of(claim, settlement)))

        assert landed == [claim.id]
        newer = holder_then_newer(finishes, claim.id)
        again = await ox.reference(PATH, unique=True).enqueue(number)
        assert again.id == newer if newer else again.created
        assert competitor.locks()[key_of(number)] == again.id
        assert list(pending_rows(competitor, number)) == [again.id]
        await ox.actions.discard(again.id)


async def test_a_holder_that_is_retried_amid_the_race_stays_the_holder_or_runs_beside_one_successor(
    ox: Oxpull, racers: Racers, competitor: Competitor
):
    for number in range(ROUNDS):
        old = competitor.insert_unique(key_of(number), status="FAILED", task_path=PATH, args=f"[{number}]")

        finishes, retried = await amid(racers.race(number), partial(ox.actions.retry, old))

        assert retried
        newer = holder_then_newer(finishes, old)
        assert competitor.locks()[key_of(number)] == (newer or old)
        assert set(pending_rows(competitor, number)) == {old} | ({newer} if newer else set())
        assert (await ox.reference(PATH, unique=True).enqueue(number)).id == (newer or old)


@pytest.mark.parametrize("how", ["discarded", "deleted", "pruned"])
async def test_a_holder_that_disappears_amid_the_race_has_at_most_one_successor(
    ox: Oxpull, racers: Racers, competitor: Competitor, how: str
):
    for number in range(ROUNDS):
        holder = (await ox.reference(PATH, unique=True).enqueue(number)).id

        async def remove(holder: UUID = holder) -> None:
            if how == "discarded":
                assert await ox.actions.discard(holder)
            elif how == "deleted":
                await aside(competitor.delete_task, holder)
            else:
                assert await ox.actions.discard(holder)
                await ox.prune(older_than=0)

        finishes, _ = await amid(racers.race(number), remove)

        newer = holder_then_newer(finishes, holder)
        again = await ox.reference(PATH, unique=True).enqueue(number)
        assert again.id == newer if newer else again.created
        assert competitor.locks()[key_of(number)] == again.id
        assert list(pending_rows(competitor, number)) == [again.id]


async def test_a_prune_that_never_rests_takes_no_live_lock(ox: Oxpull, racers: Racers, competitor: Competitor):
    async with anyio.create_task_group() as group:

        async def prune() -> None:
            while True:
                await ox.prune(older_than=0, include_failed=True)

        for _ in range(2):
            group.start_soon(prune)
        for number in range(ROUNDS * 2):
            await aside(_insert_stale, competitor, number)

            finishes = await racers.race(number)

            task_id = only_one(finishes)
            assert (await aside(competitor.locks))[key_of(number)] == task_id
            assert list(await aside(pending_rows, competitor, number)) == [task_id]
        group.cancel_scope.cancel()


def _insert_stale(competitor: Competitor, number: int) -> None:
    finished = datetime.now(UTC)
    competitor.begin()
    competitor.insert_unique(key_of(number), status="FAILED", task_path=PATH, finished_at=finished)
    competitor.commit()


async def test_when_a_competitor_rolls_back_one_of_those_who_wait_creates(racers: Racers, competitor: Competitor):
    for number in range(ROUNDS):
        await aside(competitor.begin)
        competitor.insert_unique(key_of(number))

        finishes, _ = await amid(
            racers.race(number, racers=12, ways=("alone", "guessing", "together", "many")),
            lambda: aside(competitor.rollback),
        )

        task_id = only_one(finishes)
        assert competitor.locks()[key_of(number)] == task_id
        assert list(pending_rows(competitor, number)) == [task_id]


async def test_when_a_competitor_commits_everybody_gets_its_task(racers: Racers, competitor: Competitor):
    for number in range(ROUNDS):
        await aside(competitor.begin)
        theirs = competitor.insert_unique(key_of(number), task_path=PATH, args=f"[{number}]")

        finishes, _ = await amid(
            racers.race(number, racers=12, ways=("alone", "guessing", "together", "many")),
            lambda: aside(competitor.commit),
        )

        assert set(finishes) == {Finish(theirs, False)}
        assert list(pending_rows(competitor, number)) == [theirs]


async def test_winners_that_roll_back_one_after_another_leave_the_key_to_the_one_that_commits(
    ox: Oxpull, competitor: Competitor
):
    send = ox.reference(PATH, unique=True)
    for number in range(rounds(small=5, full=100)):
        competitor.begin()
        competitor.insert_unique(key_of(number))
        losers = [_Loser(competitor.another(), key_of(number)) for _ in range(3)]

        results: list[EnqueueResult] = []

        async def enqueue(number: int, results: list[EnqueueResult]) -> None:
            results.append(await send.enqueue(number))

        async with anyio.create_task_group() as group:
            for place in range(4):
                if place == number % 4:
                    group.start_soon(enqueue, number, results)
                else:
                    losers[place - (place > number % 4)].start()
                await anyio.sleep(0.01)
            await aside(competitor.rollback)
            for loser in losers:
                await aside(loser.join)

        (result,) = results
        assert result.created
        assert competitor.locks()[key_of(number)] == result.id
        assert list(pending_rows(competitor, number)) == [result.id]


class _Loser(threading.Thread):
    """Wants the key, and rolls back once it has it (or the database makes it)."""

    def __init__(self, competitor: Competitor, key: str) -> None:
        super().__init__(daemon=True)
        self._competitor = competitor
        self._key = key

    def run(self) -> None:
        with self._competitor:
            try:
                self._competitor.begin()
                self._competitor.insert_unique(self._key)
            except Exception:  # the key was taken, or this one was a deadlock's victim: it loses either way
                pass
            finally:
                self._competitor.rollback()
