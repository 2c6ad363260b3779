"""What a unique enqueue does when the database says no: how often it looks again, and what it then tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from oxpull_async import (
    ConnectionLost,
    DeadlockDetected,
    EnqueueResult,
    LockNotAvailable,
    Oxpull,
    SerializationFailure,
    StoreError,
    UniqueEnqueueRace,
    _contention,
)
from oxpull_async.core.keys import unique_key
from oxpull_async.enqueueing.desk import Desk
from oxpull_async.enqueueing.expectations import FREE_IN_A_ROW
from oxpull_async.enqueueing.unique import insert_unique, insert_uniques_together, row_of
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, TakeOver, TaskRow, Unseen
from tests.conformance.rows import new_unique
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.scale import rounds

PATH = "proof.tasks.send"


class Fickle:
    """A store in whose answers nothing is certain: each is an answer, or an error to raise; the last one stays."""

    def __init__(self, *answers: Attempt | Exception) -> None:
        self._answers = list(answers)
        self.calls: list[str] = []
        self.guesses: list[bool] = []

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, probably_free: bool = False
    ) -> Sequence[Attempt]:
        self.guesses.append(probably_free)
        return [self._answer("insert")]

    async def insert_unique_together(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float, passes: int
    ) -> Sequence[Attempt]:
        return [self._answer("together")] * len(uniques)

    async def read_holder(self, key: str) -> Attempt:
        return self._answer("read")

    async def take_over(self, take_over: TakeOver, *, wait_seconds: float) -> Attempt:
        return self._answer("take over")

    async def get_task(self, task_id: object) -> TaskRow | None:
        self.calls.append("get")
        return None

    def _answer(self, call: str) -> Attempt:
        self.calls.append(call)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contention, "_PAUSE_SECONDS", 0.001)


async def decide(*answers: Attempt | Exception, wait_seconds: float = 5) -> tuple[Any, list[str]]:
    """What one key comes to at a fickle store, and how it was asked."""
    fickle: Any = Fickle(*answers)
    try:
        outcome: Any = await insert_unique(fickle, new_unique("a"), wait_seconds=wait_seconds)
    except (UniqueEnqueueRace, StoreError) as error:
        outcome = error
    return outcome, fickle.calls


async def test_a_key_that_is_never_seen_is_given_up_after_five_passes():
    race, calls = await decide(Unseen())

    assert isinstance(race, UniqueEnqueueRace)
    assert (race.reason, race.retry, race.attempts) == ("undecided", "call", 5)
    assert "after 5 attempts" in str(race)
    assert calls == ["insert", "read"] * 5


async def test_a_key_that_always_goes_stale_is_given_up_after_five_passes():
    race, calls = await decide(Held(None, None))

    assert isinstance(race, UniqueEnqueueRace)
    assert race.attempts == 5
    assert calls == ["insert", "take over"] * 5


async def test_a_key_that_is_seen_late_is_found():
    task = new_unique("a").task
    holder = Held(task.id, row_of(task))

    assert await decide(Unseen(), Unseen(), Unseen(), holder) == (holder, ["insert", "read", "insert", "read"])


async def test_a_key_is_thought_to_be_free_after_enough_that_were_and_found_if_it_is_not():
    task = new_unique("a").task
    holder = Held(task.id, row_of(task))
    free = [Inserted()] * (FREE_IN_A_ROW + 1)
    fickle: Any = Fickle(*free, Unseen(), holder, Inserted())
    desk = Desk(fickle)

    answers = [await desk.insert_unique(new_unique(str(n)), wait_seconds=5) for n in range(len(free) + 2)]

    assert answers == [*free, holder, Inserted()]
    assert fickle.guesses == [False] * FREE_IN_A_ROW + [True, True, False]
    assert fickle.calls[-3:] == ["insert", "read", "insert"]


@pytest.mark.parametrize(("kind", "tries"), [(DeadlockDetected, 5), (SerializationFailure, 10), (ConnectionLost, 2)])
async def test_a_transaction_of_our_own_is_repeated_so_often(kind: type[StoreError], tries: int):
    outcome, calls = await decide(*[kind("no")] * (tries - 1), Inserted())

    assert outcome == Inserted()
    assert calls == ["insert"] * tries


@pytest.mark.parametrize(
    ("kind", "tries", "reason"), [(DeadlockDetected, 5, "deadlock"), (SerializationFailure, 10, "serialization")]
)
async def test_when_it_is_repeated_in_vain_it_is_told_why(kind: type[StoreError], tries: int, reason: str):
    error = kind("no")
    race, calls = await decide(error)

    assert isinstance(race, UniqueEnqueueRace)
    assert (race.reason, race.retry) == (reason, "call")
    assert race.__cause__ is error
    assert calls == ["insert"] * tries


async def test_a_lock_that_is_not_to_be_had_is_not_asked_for_again():
    race, calls = await decide(LockNotAvailable("no"), wait_seconds=0.5)

    assert isinstance(race, UniqueEnqueueRace)
    assert (race.reason, calls) == ("lock_wait", ["insert"])
    assert "another transaction has held its key for longer than this call may wait" in str(race)


@pytest.mark.parametrize("error", [StoreError("no"), ConnectionLost("no")], ids=lambda error: type(error).__name__)
async def test_any_other_error_is_handed_on_as_it_is(error: StoreError):
    outcome, _ = await decide(error)

    assert outcome is error


async def test_many_keys_are_given_up_alike():
    fickle: Any = Fickle(Unseen())

    with pytest.raises(UniqueEnqueueRace, match="2 calls") as caught:
        await insert_uniques_together(fickle, [new_unique("a"), new_unique("b")], wait_seconds=5)

    assert (caught.value.reason, caught.value.attempts) == ("undecided", 5)
    assert fickle.calls == ["together"] * 5


# The server chooses the victim, and either way it ends
@pytest.mark.engines("postgres", "mysql")
async def test_a_real_deadlock_ends_well(ox: Oxpull, competitor: Competitor):
    send = ox.reference(PATH, unique=True)
    for _ in range(rounds(small=2, full=20)):
        keys = sorted([("a",), ("b",)], key=lambda args: unique_key("default", PATH, "default", args, {}))
        first, last = (unique_key("default", PATH, "default", args, {}) for args in keys)
        results: list[EnqueueResult] = []

        async def enqueue(results: list[EnqueueResult]) -> None:
            results.extend(await send.enqueue_many([("b",), ("a",)]))

        competitor.begin()
        theirs = competitor.insert_unique(last)
        async with anyio.create_task_group() as group:
            group.start_soon(enqueue, results)
            await eventually(lambda: aside(_someone_waits, competitor))
            opponent = _Opponent(partial(competitor.insert_unique, first))
            opponent.start()
            await aside(opponent.join)
            competitor.run("ROLLBACK" if opponent.failure else "COMMIT")

        locks = competitor.locks()
        assert len(locks) == 2
        assert {result.id for result in results} == set(locks.values())
        assert all(result.created for result in results) is (opponent.failure is not None)
        assert (theirs in locks.values()) is (opponent.failure is None)
        competitor.run("DELETE FROM oxpull_oxpulluniquelock")


class _Opponent(threading.Thread):
    """Does something that may end in a deadlock."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._deed = deed
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._deed()
        except Exception as error:
            self.failure = error


def _someone_waits(competitor: Competitor) -> bool:
    with competitor.another() as observer:
        return observer.waiting_sessions() > 0
