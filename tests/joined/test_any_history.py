"""Any history of two callers' transactions, with settling, discarding and deleting between, against a model of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from oxpull_async import EnqueueResult, Oxpull, TransactionRolledBack, UniqueEnqueueRace
from tests.integration.competitor import Competitor
from tests.joined.calls import SEND, key_of, own_rows
from tests.joined.handles import READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, Handle
from tests.scale import rounds

KEYS = (1, 2, 3)
CALLERS = (0, 1)
STATUSES = ("RUNNING", "SUCCESSFUL", "FAILED", "LOST")
WAIT_SECONDS = 0.02
callers = st.sampled_from(CALLERS)
keys = st.sampled_from(KEYS)
choices = st.randoms(use_true_random=False)


@dataclass
class World:
    """Rows as one would see them: what is committed, or what a transaction has made of it."""

    statuses: dict[UUID, str] = field(default_factory=dict)
    locks: dict[int, UUID] = field(default_factory=dict)
    orders: set[int] = field(default_factory=set)


@dataclass
class Changes:
    """What a transaction has written so far."""

    tasks: set[UUID] = field(default_factory=set)
    locks: dict[int, UUID] = field(default_factory=dict)
    """Keys that were free or stale, and are held by one of `tasks` now."""
    freed: set[UUID] = field(default_factory=set)
    """Settled holders whose key was taken over: their rows are locked until the end."""
    orders: set[int] = field(default_factory=set)

    def copy(self) -> Changes:
        return Changes(set(self.tasks), dict(self.locks), set(self.freed), set(self.orders))


@dataclass
class Transaction:
    changes: Changes = field(default_factory=Changes)
    savepoints: list[Changes] = field(default_factory=list)


class Stage:
    """The callers, the library and a competitor, for all histories of a test."""

    def __init__(self, url: str, handle: Handle) -> None:
        self.handle = handle
        self.runner = asyncio.Runner()
        self.competitor = Competitor(url)
        self.competitor.be_impatient()
        self.ox = Oxpull(url)
        self.runner.run(self.ox.open())
        self.callers = [handle.make(url) for _ in CALLERS]
        for caller in self.callers:
            self.runner.run(caller.open())

    def clear(self) -> None:
        for table in ("oxpull_oxpulluniquelock", "django_ox_oxtask", "orders"):
            self.competitor.run(f"DELETE FROM {table}")

    def close(self) -> None:
        for caller in self.callers:
            self.runner.run(caller.close())
        self.runner.run(self.ox.close())
        self.competitor.close()
        self.runner.close()


class Histories(RuleBasedStateMachine):
    """READ COMMITTED: what every call must answer is known beforehand."""

    level = READ_COMMITTED
    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.run = self.stage.runner.run
        self.callers = self.stage.callers
        self.competitor = self.stage.competitor
        self.ox = self.stage.ox
        self.send = self.ox.reference(SEND, unique=True).using(wait=WAIT_SECONDS)
        self.world = World()
        self.open: dict[int, Transaction] = {}
        self.next_order = 0

    def teardown(self) -> None:
        for number in list(self.open):
            self.end(number)
        self.stage.clear()

    # Transactions: a caller's first deed begins one

    def transaction_of(self, number: int) -> Transaction:
        if number not in self.open:
            self.run(self.callers[number].begin(self.level))
            self.open[number] = Transaction()
            self.begun(number)
        return self.open[number]

    def begun(self, number: int) -> None:
        """For levels at which that matters."""

    def theirs(self, number: int, work: Coroutine[Any, Any, object]) -> bool:
        """Run something of the caller's own. False: the database has refused it, and the transaction is over."""
        self.run(work)
        return True

    @rule(number=callers)
    def order(self, number: int) -> None:
        transaction = self.transaction_of(number)
        self.next_order += 1
        if self.theirs(number, self.callers[number].order(self.next_order)):
            transaction.changes.orders.add(self.next_order)

    @rule(number=callers)
    def set_savepoint(self, number: int) -> None:
        transaction = self.transaction_of(number)
        if self.theirs(number, self.callers[number].run(f"SAVEPOINT theirs_{len(transaction.savepoints)}")):
            transaction.savepoints.append(transaction.changes.copy())

    @precondition(lambda self: any(transaction.savepoints for transaction in self.open.values()))
    @rule(release=st.booleans())
    def end_savepoint(self, release: bool) -> None:
        number = next(number for number, transaction in self.open.items() if transaction.savepoints)
        transaction = self.open[number]
        name = f"theirs_{len(transaction.savepoints) - 1}"
        before = transaction.savepoints.pop()
        if not release:
            self.run(self.callers[number].run(f"ROLLBACK TO SAVEPOINT {name}"))
            transaction.changes = before
        self.theirs(number, self.callers[number].run(f"RELEASE SAVEPOINT {name}"))

    @precondition(lambda self: self.open)
    @rule(choice=choices)
    def commit(self, choice: random.Random) -> None:
        self.keep(choice.choice(sorted(self.open)))

    def keep(self, number: int) -> None:
        if not self.theirs(number, self.callers[number].commit()):
            return
        changes = self.open.pop(number).changes
        self.world.statuses |= dict.fromkeys(changes.tasks, "READY")
        self.world.locks |= changes.locks
        self.world.orders |= changes.orders

    @precondition(lambda self: self.open)
    @rule(choice=choices)
    def rollback(self, choice: random.Random) -> None:
        self.end(choice.choice(sorted(self.open)))

    def end(self, number: int) -> None:
        self.run(self.callers[number].rollback())
        del self.open[number]

    # Enqueue

    @rule(number=callers, key=keys)
    def enqueue(self, number: int, key: int) -> None:
        self.transaction_of(number)
        bound = self.ox.bind(self.callers[number].bindable)
        self._expect(number, [key], lambda: _alone(bound.enqueue_unique(self.send, key)))

    @rule(number=callers, key=keys, end=st.sampled_from(["commit", "settle", "discard", "delete"]), choice=choices)
    def enqueue_and_have_it_ended(self, number: int, key: int, end: str, choice: random.Random) -> None:
        """What makes most of the stories: others do something to what was committed a moment ago."""
        self.enqueue(number, key)
        if number in self.open:
            self.keep(number)
        if self.world.statuses:
            match end:
                case "settle":
                    self.settle(choice, choice.choice(STATUSES))
                case "discard":
                    self.discard(choice)
                case "delete":
                    self.delete(choice)

    @rule(number=callers, chosen=st.lists(keys, min_size=1, max_size=5))
    def enqueue_many(self, number: int, chosen: list[int]) -> None:
        self.transaction_of(number)
        bound = self.ox.bind(self.callers[number].bindable)
        self._expect(number, chosen, lambda: bound.enqueue_unique_many(self.send, [(key,) for key in chosen]))

    def _expect(
        self, number: int, chosen: list[int], call: Callable[[], Coroutine[Any, Any, list[EnqueueResult]]]
    ) -> None:
        changes = self.open[number].changes
        if any(self._is_taken_by_another(number, key) for key in chosen):
            with pytest.raises(UniqueEnqueueRace) as caught:
                self.run(call())
            assert caught.value.reason == "lock_wait"
            return
        results = self.run(call())
        for key, result in zip(chosen, results, strict=True):
            holder = self._pending_holder(changes, key)
            assert result.created == (holder is None)
            if holder is None:
                stale = self.world.locks.get(key)
                changes.freed |= {stale} & set(self.world.statuses) if stale else set()
                changes.tasks.add(result.id)
                changes.locks[key] = result.id
            else:
                assert result.id == holder
                assert result.status == self.world.statuses.get(holder, "READY")

    def _pending_holder(self, changes: Changes, key: int) -> UUID | None:
        holder = changes.locks.get(key) or self.world.locks.get(key)
        if holder in changes.tasks:
            return holder
        return holder if holder and self.world.statuses.get(holder) in ("READY", "RUNNING") else None

    def _is_taken_by_another(self, number: int, key: int) -> bool:
        if key in self.open[number].changes.locks or self._pending_holder(self.open[number].changes, key):
            return False
        return any(key in other.changes.locks for n, other in self.open.items() if n != number)

    # What others do meanwhile

    @precondition(lambda self: self.world.statuses)
    @rule(choice=choices, status=st.sampled_from(STATUSES))
    def settle(self, choice: random.Random, status: str) -> None:
        if (task_id := self._unlocked_task(choice)) and self.world.statuses[task_id] != status:
            self.competitor.set_task(task_id, status=status)
            self.world.statuses[task_id] = status

    @precondition(lambda self: self.world.statuses)
    @rule(choice=choices)
    def discard(self, choice: random.Random) -> None:
        if task_id := self._unlocked_task(choice):
            changed = self.run(self.ox.actions.discard(task_id))
            if changed:
                self.world.statuses[task_id] = "DISCARDED"

    @precondition(lambda self: self.world.statuses)
    @rule(choice=choices)
    def delete(self, choice: random.Random) -> None:
        if task_id := self._unlocked_task(choice):
            self.competitor.delete_task(task_id)
            del self.world.statuses[task_id]

    def _unlocked_task(self, choice: random.Random) -> UUID | None:
        locked = set[UUID]().union(*(transaction.changes.freed for transaction in self.open.values()))
        free = set(self.world.statuses) - locked
        holders = free & set(self.world.locks.values())
        return choice.choice(sorted(holders or free)) if free else None

    # Always

    @invariant()
    def what_is_committed_is_what_the_model_says(self) -> None:
        assert self.competitor.statuses() == self.world.statuses
        assert self.competitor.locks() == {key_of(key): task_id for key, task_id in self.world.locks.items()}
        assert own_rows(self.competitor) == self.world.orders

    @invariant()
    def every_transaction_sees_its_own_rows(self) -> None:
        for number, transaction in self.open.items():
            if self.sees_what_is_committed:
                assert self.run(self.callers[number].orders()) == self.world.orders | transaction.changes.orders

    sees_what_is_committed = True


class SnapshotHistories(Histories):
    """A snapshot: a call may also be told a race, and leaves the transaction as it was; the rest holds as before."""

    level = REPEATABLE_READ
    sees_what_is_committed = False

    def begun(self, number: int) -> None:
        self.run(self.callers[number].look())

    def theirs(self, number: int, work: Coroutine[Any, Any, object]) -> bool:
        try:
            self.run(work)
        except Exception as error:
            assert self.level == SERIALIZABLE
            assert "could not serialize" in str(error)
            self.end(number)
            return False
        return True

    def _expect(
        self, number: int, chosen: list[int], call: Callable[[], Coroutine[Any, Any, list[EnqueueResult]]]
    ) -> None:
        transaction = self.open[number]
        try:
            results = self.run(call())
        except UniqueEnqueueRace as race:
            assert race.retry in ("call", "transaction")
            return
        except TransactionRolledBack:
            assert self.stage.handle.dialect == "mysql"
            self.end(number)
            return
        for key, result in zip(chosen, results, strict=True):
            if result.created:
                assert self._pending_holder(transaction.changes, key) is None
                stale = self.world.locks.get(key)
                transaction.changes.freed |= {stale} & set(self.world.statuses) if stale else set()
                transaction.changes.tasks.add(result.id)
                transaction.changes.locks[key] = result.id
            else:
                assert result.id == self._pending_holder(transaction.changes, key)


async def _alone(call: Coroutine[Any, Any, EnqueueResult]) -> list[EnqueueResult]:
    return [await call]


@pytest.fixture
def stage(url: str, handle: Handle) -> Iterator[Stage]:
    stage = Stage(url, handle)
    yield stage
    stage.close()


def run(kind: type[Histories], stage: Stage, **attributes: Any) -> None:
    settings = hypothesis.settings(
        max_examples=rounds(small=10, full=400), stateful_step_count=rounds(small=30, full=50), deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(type(kind.__name__, (kind,), {"stage": stage, **attributes}), settings=settings)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["asyncpg", "postgresql+psycopg-session"], indirect=True)
def test_any_history_at_read_committed_goes_as_the_model_says(stage: Stage):
    run(Histories, stage)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("way", "level"),
    [("asyncpg", REPEATABLE_READ), ("asyncpg", SERIALIZABLE), ("postgresql+asyncpg-session", REPEATABLE_READ)],
    indirect=["way"],
)
def test_any_history_at_a_snapshot_level_leaves_what_it_says(stage: Stage, level: str):
    run(SnapshotHistories, stage, level=level)
