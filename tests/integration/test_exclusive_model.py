"""Whatever is done in whatever order, who holds a key and who waits for it is what a model of a few lines says."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from oxpull_async.core.exclusivity import mutex_key
from oxpull_async.ports_exclusive import HeldPlace, Wanted
from tests.integration.machines import DatabaseMachine
from tests.scale import rounds

NAME = "feed:one"
KEY = mutex_key(NAME)
CALLERS = [UUID(int=number) for number in range(1, 6)]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

callers = st.sampled_from(CALLERS)


class Model:
    """Who has a place, for whom one is kept, and who stands in line."""

    def __init__(self) -> None:
        self.limit = 1
        self.held: dict[UUID, int] = {}
        self.kept: list[UUID] = []
        self.line: list[UUID] = []
        self.over: set[UUID] = set()
        """Whose lease, or kept place, is over, and still there."""
        self.silent: set[UUID] = set()
        """Who stands in line and has stopped asking."""
        self.newest = 0

    @property
    def taken(self) -> int:
        return len(self.held) + len(self.kept)

    def ask(self, caller: UUID) -> bool:
        """Whether the caller has a place now; else it stands in line."""
        if self.over or (self.line and self.taken < self.limit):
            self.clear()
            self.fill()
        if caller in self.held:
            return True
        if caller in self.kept:
            self.kept.remove(caller)
            return True
        if not self.line and self.taken < self.limit:
            return True
        self.silent.discard(caller)
        if caller not in self.line:
            self.line.append(caller)
        return False

    def clear(self) -> None:
        self.held = {caller: token for caller, token in self.held.items() if caller not in self.over}
        self.kept = [caller for caller in self.kept if caller not in self.over]
        self.over = set()

    def fill(self) -> list[UUID]:
        """Free places are kept for who is first in line; returns for whom."""
        if not self.line:
            return []
        self.clear()
        told = []
        while self.line:
            if self.line[0] in self.silent:
                self.line = [caller for caller in self.line if caller not in self.silent]
                self.silent = set()
            elif self.taken < self.limit:
                told.append(self.line[0])
                self.kept.append(self.line.pop(0))
            else:
                break
        return told

    def leave(self, caller: UUID) -> None:
        self.held.pop(caller, None)
        self.over.discard(caller)
        self.silent.discard(caller)
        self.kept = [kept for kept in self.kept if kept != caller]
        self.line = [waiting for waiting in self.line if waiting != caller]


class Key(DatabaseMachine):
    """One key, and callers who come, go, die and are late."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Model()

    @initialize(limit=st.integers(1, 3))
    def begin(self, limit: int) -> None:
        self._model.limit = limit

    @rule(caller=callers)
    def ask(self, caller: UUID) -> None:
        had = self._model.held.get(caller)
        wanted = Wanted(KEY, NAME, caller, self._model.limit, 60)
        answer, _ = self._run(self._store.exclusive.acquire(wanted, patience_seconds=60))

        assert isinstance(answer, HeldPlace) is self._model.ask(caller)
        if isinstance(answer, HeldPlace):
            if self._model.held.get(caller) is None:
                assert answer.token > self._model.newest
                self._model.held[caller] = self._model.newest = answer.token
            else:
                assert answer.token == had

    @rule(caller=callers)
    def give_back(self, caller: UUID) -> None:
        token = self._model.held.get(caller, self._model.newest)
        released, freed = self._run(self._store.exclusive.release([HeldPlace(KEY, token, caller, 60)]))

        assert bool(released) is (caller in self._model.held)
        if released:
            self._model.leave(caller)
        assert list(freed.callers) == self._model.fill()

    @rule(caller=callers)
    def give_up(self, caller: UUID) -> None:
        freed = self._run(self._store.exclusive.abandon(KEY, caller))

        self._model.leave(caller)
        assert list(freed.callers) == self._model.fill()

    @rule(caller=callers)
    def renew(self, caller: UUID) -> None:
        place = HeldPlace(KEY, self._model.held.get(caller, self._model.newest), caller, 60)
        renewal = self._run(self._store.exclusive.renew([place]))

        is_held = caller in self._model.held
        assert (list(renewal.extended), list(renewal.lost)) == (([place], []) if is_held else ([], [place]))
        if is_held:
            self._model.over.discard(caller)

    @rule(caller=callers)
    def be_late(self, caller: UUID) -> None:
        """The caller's lease is over, or it has let its kept place or its place in line go."""
        for table in ("holder", "waiter"):
            self._competitor.run(
                f"UPDATE oxpull_async_mutex_{table} SET expires_at = ? WHERE owner = ?", LONG_AGO, caller
            )
        if caller in self._model.held or caller in self._model.kept:
            self._model.over.add(caller)
        if caller in self._model.line:
            self._model.silent.add(caller)

    @rule(caller=callers)
    def look(self, caller: UUID) -> None:
        model = self._model
        found = self._run(self._store.exclusive.has_place(KEY, caller, model.limit))

        assert found is (caller in model.kept or model.taken - len(model.over) < model.limit)

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        model = self._model
        holders = self._competitor.rows("SELECT owner, number, is_reserved FROM oxpull_async_mutex_holder")
        assert {UUID(str(o)): n for o, n, is_reserved in holders if not is_reserved} == model.held
        assert {UUID(str(o)) for o, _, is_reserved in holders if is_reserved} == set(model.kept)
        waiters = self._competitor.rows("SELECT owner FROM oxpull_async_mutex_waiter ORDER BY number")
        assert [UUID(str(owner)) for (owner,) in waiters] == model.line
        assert model.taken <= model.limit


@pytest.mark.timeout(rounds(small=120, full=3600))
def test_holders_and_waiters_are_what_the_model_says(migrated_url: str):
    class AtThisDatabase(Key):
        url = migrated_url

    run_state_machine_as_test(
        AtThisDatabase,
        settings=settings(
            max_examples=rounds(small=15, full=500),
            stateful_step_count=rounds(small=30, full=60),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
