"""Many callers, each in a transaction of its own with rows of its own, want the same keys; some roll back."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

import pytest

from oxpull_async import EnqueueResult, Oxpull, OxpullError, TransactionRolledBack, UniqueEnqueueRace
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import hold, key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import READ_COMMITTED, SERIALIZABLE, Caller, Handle
from tests.scale import rounds

pytestmark = pytest.mark.usefixtures("few")

Callers = Callable[[], Awaitable[Caller]]

WAIT_SECONDS = 5.0
LONGEST_SECONDS = 2 * WAIT_SECONDS


@dataclass
class Finish:
    """How one caller's transaction went."""

    number: int
    ended: Literal["committed", "rolled back", "lost"] = "lost"
    results: list[EnqueueResult] = field(default_factory=list)
    error: OxpullError | None = None
    seconds: float = 0.0
    """How long its longest call took."""


@pytest.mark.timeout(rounds(small=600, full=1800))
async def test_someones_row_survives_if_and_only_if_someone_committed(
    ox: Oxpull, send: AnyTask, new_caller: Callers, level: str, competitor: Competitor, handle: Handle
):
    racers = rounds(small=10, full=16 if handle.dialect == "sqlite" else 64)
    callers = [await new_caller() for _ in range(racers)]
    for race in range(rounds(small=5, full=200)):
        finishes = await asyncio.gather(
            *[_race(ox, send, caller, level, race, race * racers + n) for n, caller in enumerate(callers)]
        )
        _check(finishes, competitor, race, handle, level)


async def _race(ox: Oxpull, send: AnyTask, caller: Caller, level: str, race: int, number: int) -> Finish:
    finish = Finish(number)
    bound = ox.bind(caller.bindable)
    try:
        await caller.begin(level)
        await caller.order(2 * number)
        try:
            for _ in range(random.choice((1, 1, 2))):
                began = time.monotonic()
                try:
                    finish.results.append(await bound.enqueue_unique(send.using(wait=WAIT_SECONDS), race))
                finally:
                    finish.seconds = max(finish.seconds, time.monotonic() - began)
        except UniqueEnqueueRace as error:
            finish.error = error
        await caller.order(2 * number + 1)
        if random.random() < 0.3:
            await caller.rollback()
            finish.ended = "rolled back"
        else:
            await caller.commit()
            finish.ended = "committed"
    except Exception as error:
        finish.error = error if isinstance(error, OxpullError) else None
        finish.results.clear()
        await caller.rollback()
        if not isinstance(error, TransactionRolledBack):
            assert _is_serialization(error), repr(error)
    return finish


def _is_serialization(error: BaseException) -> bool:
    """The caller's own statement or COMMIT was refused, as happens at SERIALIZABLE and after a deadlock."""
    words = str(error)
    return any(told in words for told in ("could not serialize", "Deadlock found", "1020", "database is locked"))


def _check(finishes: Sequence[Finish], competitor: Competitor, race: int, handle: Handle, level: str) -> None:
    locks, statuses, orders = competitor.locks(), competitor.statuses(), own_rows(competitor)
    committed = [finish for finish in finishes if finish.ended == "committed"]
    survivor = locks.get(key_of(race))

    assert (survivor is not None) == any(finish.results for finish in committed)
    assert {result.id for finish in committed for result in finish.results} <= {survivor}
    created = [result.id for finish in committed for result in finish.results if result.created]
    assert created == ([survivor] if survivor else [])
    assert set(locks.values()) == set(statuses)
    for finish in finishes:
        mine = {2 * finish.number, 2 * finish.number + 1}
        assert mine & orders == (mine if finish.ended == "committed" else set()), finish
        assert finish.seconds < LONGEST_SECONDS
    lost = Counter(type(finish.error).__name__ for finish in finishes if finish.ended == "lost")
    if handle.dialect == "postgres" and level != SERIALIZABLE:
        assert not lost, lost


@pytest.mark.engines("postgres", "mysql")
async def test_whoever_is_last_after_winners_that_roll_back_has_the_row(
    ox: Oxpull, send: AnyTask, new_caller: Callers, level: str, competitor: Competitor, dialect: str
):
    callers = [await new_caller() for _ in range(5)]
    for race in range(rounds(small=4, full=100)):
        waiting = len(callers)
        kept: list[UUID] = []

        async def run(caller: Caller, race: int = race, kept: list[UUID] = kept) -> None:
            nonlocal waiting
            await caller.begin(level)
            try:
                result = await ox.bind(caller.bindable).enqueue_unique(send, race)
            except (TransactionRolledBack, UniqueEnqueueRace):
                waiting -= 1
                await caller.rollback()
                return
            waiting -= 1
            if waiting and result.created:
                await asyncio.sleep(0)
                await caller.rollback()
                return
            await caller.commit()
            kept.append(result.id)

        await asyncio.gather(*[run(caller) for caller in random.sample(callers, len(callers))])

        assert competitor.locks().get(key_of(race)) == (kept[-1] if kept else None)
        assert kept or (dialect, level) != ("postgres", READ_COMMITTED)
        assert len(set(kept)) <= 1
        no_lock_without_task_nor_task_without_lock(competitor)


# A stale lock's release races two inserts
@pytest.mark.engines("postgres", "mysql")
async def test_one_of_many_takes_a_stale_lock_over(
    ox: Oxpull, send: AnyTask, new_caller: Callers, level: str, competitor: Competitor
):
    callers = [await new_caller() for _ in range(6)]
    for race in range(rounds(small=4, full=100)):
        settled = hold(competitor, race, status="FAILED")

        async def run(caller: Caller, race: int = race) -> EnqueueResult | None:
            try:
                await caller.begin(level)
                result = await ox.bind(caller.bindable).enqueue_unique(send.using(wait=WAIT_SECONDS), race)
                await caller.commit()
            except Exception as error:
                await caller.rollback()
                assert isinstance(error, TransactionRolledBack | UniqueEnqueueRace) or _is_serialization(error)
                return None
            return result

        results = [result for result in await asyncio.gather(*map(run, callers)) if result is not None]

        assert len({result.id for result in results}) == 1
        assert [result.created for result in results].count(True) == 1
        assert competitor.locks()[key_of(race)] == results[0].id != settled


# Many keys in one transaction, in any order, against others in another order


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.timeout(rounds(small=600, full=1800))
@pytest.mark.parametrize("bulk", [False, True], ids=["one-by-one", "in-bulk"])
async def test_keys_in_differing_orders_end_in_rows_or_in_typed_errors(
    ox: Oxpull, send: AnyTask, new_caller: Callers, level: str, competitor: Competitor, handle: Handle, bulk: bool
):
    callers = [await new_caller() for _ in range(4)]
    errors: Counter[str] = Counter()
    for race in range(rounds(small=3, full=100)):
        numbers = [race * 10 + n for n in range(5)]
        ended = await asyncio.gather(
            *[_enqueue_all(ox, send, caller, level, handle, numbers, bulk, race * 4 + n)
              for n, caller in enumerate(callers)]
        )  # fmt: skip
        for number, (committed, error) in enumerate(ended):
            errors[error] += 1
            assert (race * 4 + number in own_rows(competitor)) == committed
        no_lock_without_task_nor_task_without_lock(competitor)
        if any(committed for committed, _ in ended):
            assert set(competitor.locks()) >= ({key_of(n) for n in numbers} if bulk else set())

    if bulk and handle.dialect == "postgres" and level != SERIALIZABLE:
        assert set(errors) == {""}  # one statement takes its keys in order, so there's nothing to deadlock


async def _enqueue_all(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, handle: Handle, numbers: list[int], bulk: bool, own: int
) -> tuple[bool, str]:
    """Whether the transaction was committed, and the error if there was one."""
    order = random.sample(numbers, len(numbers))
    bound = ox.bind(caller.bindable)
    error = ""
    try:
        await caller.begin(level)
        await caller.order(own)
        if handle.dialect == "postgres":
            await caller.run("SET LOCAL deadlock_timeout = '20ms'")
        try:
            if bulk:
                await bound.enqueue_unique_many(send.using(wait=WAIT_SECONDS), [(n,) for n in order])
            else:
                for n in order + random.sample(numbers, 2):
                    await bound.enqueue_unique(send.using(wait=WAIT_SECONDS), n)
        except UniqueEnqueueRace as race:
            error = race.reason
            if bulk:
                raise
        await caller.commit()
    except Exception as stopped:
        await caller.rollback()
        assert isinstance(stopped, OxpullError) or _is_serialization(stopped), repr(stopped)
        return False, error or type(stopped).__name__
    return True, error
