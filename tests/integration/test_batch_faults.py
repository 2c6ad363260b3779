"""Adding, sealing and completing are cancelled, cut off and killed at every point: nothing is done by half.

No member without its task, no task without its membership; no callback without COMPLETE, and no COMPLETE without its
callback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import Batch, BatchMemberExists, BatchSealed, BatchStatus, Oxpull
from oxpull_async._ids import new_id
from tests.eventually import eventually
from tests.integration.cancelling import cancelled_at, ways
from tests.integration.competitor import Competitor, aside
from tests.integration.doomed import Doomed, die
from tests.integration.faults import Fault, sides
from tests.integration.faults import Moment as FaultMoment
from tests.scale import LEADING, points

MOST = 80
PLAIN, UNIQUE, CALLBACK = "proof.tasks.plain", "proof.tasks.unique", "proof.tasks.callback"
BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"
TABLES = [MEMBERS, BATCHES, "oxpull_oxpulluniquelock", "django_ox_oxtask"]

pytestmark = [pytest.mark.timeout(120), pytest.mark.engines(*LEADING)]


def declare(ox: Oxpull) -> Oxpull:
    """The callback is known here."""

    async def callback() -> None: ...

    callback.__module__, callback.__qualname__ = "proof.tasks", "callback"
    ox.task(callback)
    return ox


@dataclass(frozen=True)
class Deed:
    """What is cut off; ``again`` says what may be raised when it's repeated after it was done."""

    name: str
    call: Callable[[Batch, Oxpull], Awaitable[Any]]
    done: Callable[[Competitor, UUID], bool]
    again: tuple[type[Exception], ...] = ()
    settled: bool = False


def members(competitor: Competitor, batch_id: UUID) -> int:
    return int(competitor.rows(f"SELECT COUNT(*) FROM {MEMBERS} WHERE batch_id = ?", batch_id)[0][0])


def status(competitor: Competitor, batch_id: UUID) -> str:
    return str(competitor.rows(f"SELECT status FROM {BATCHES} WHERE id = ?", batch_id)[0][0])


DEEDS = [
    Deed("an addition", lambda batch, ox: batch.add(ox.reference(PLAIN), 1), lambda c, b: members(c, b) >= 1),
    Deed(
        "a unique addition",
        lambda batch, ox: batch.add(ox.reference(UNIQUE, unique=True), "new"),
        lambda c, b: members(c, b) == 1,
        again=(BatchMemberExists,),
    ),
    Deed(
        "a pending task joins",
        lambda batch, ox: batch.add(ox.reference(UNIQUE, unique=True), "pending"),
        lambda c, b: members(c, b) == 1,
        again=(BatchMemberExists,),
    ),
    Deed(
        "many additions",
        lambda batch, ox: batch.add_many(ox.reference(PLAIN), [(n,) for n in range(5)]),
        lambda c, b: members(c, b) >= 5,
    ),
    Deed(
        "many unique additions",
        lambda batch, ox: batch.add_many(ox.reference(UNIQUE, unique=True), [("pending",), ("b",), ("a",), ("b",)]),
        lambda c, b: members(c, b) == 3,
    ),
    Deed("a seal", lambda batch, ox: batch.seal(), lambda c, b: status(c, b) == "SEALED", again=(BatchSealed,)),
    Deed(
        "a completion", lambda batch, ox: ox.batches.reconcile(), lambda c, b: status(c, b) == "COMPLETE", settled=True
    ),
]
BY_NAME = {deed.name: deed for deed in DEEDS}
every_deed = pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)


@pytest.fixture
async def keeper(migrated_url: str) -> AsyncIterator[Oxpull]:
    """One that nothing happens to."""
    async with declare(Oxpull(migrated_url)) as ox:
        yield ox


async def prepared(ox: Oxpull, competitor: Competitor, deed: Deed) -> UUID:
    """A batch for the deed, in an empty database but for a pending unique task that is no member."""
    for table in TABLES:
        competitor.run(f"DELETE FROM {table}")
    await ox.reference(UNIQUE, unique=True, priority=9).enqueue("pending")
    batch = await ox.batches.create("proof", on_complete=CALLBACK, on_success=CALLBACK)
    if deed.settled:
        member = await batch.add(ox.reference(PLAIN), 1)
        await batch.seal()
        competitor.set_task(member.id, status="SUCCESSFUL")
    return batch.id


def assert_sound(competitor: Competitor, batch_id: UUID) -> None:
    """Nothing is done by half."""
    strays = competitor.rows(f"SELECT COUNT(*) FROM {MEMBERS} WHERE task_id NOT IN (SELECT id FROM django_ox_oxtask)")
    lonely = competitor.rows(
        f"SELECT COUNT(*) FROM django_ox_oxtask WHERE id NOT IN (SELECT task_id FROM {MEMBERS}) "
        f"AND task_path IN ('{PLAIN}', '{UNIQUE}') AND priority = 0"
    )
    columns = "status, total_count, failed_count, callback_task_id, success_task_id"
    ((state, total, failed, on_complete, on_success),) = competitor.rows(
        f"SELECT {columns} FROM {BATCHES} WHERE id = ?", batch_id
    )
    callbacks = {
        str(row[0]) for row in competitor.rows(f"SELECT id FROM django_ox_oxtask WHERE task_path = '{CALLBACK}'")
    }
    assert (strays, lonely) == ([(0,)], [(0,)])
    if state == "COMPLETE":
        assert callbacks == {str(on_complete), str(on_success)}
        assert (total, failed) == (members(competitor, batch_id), 0)
    else:
        assert callbacks == set()
        assert (total is None) == (state == "OPEN")
        assert total in (None, members(competitor, batch_id))


async def at_rest(competitor: Competitor, batch_id: UUID) -> None:
    """Once the server has done with what was cut off."""

    def look() -> None:
        with competitor.another() as observer:
            assert observer.open_transactions() == 0
            if observer.scheme != "sqlite":
                assert observer.waiting_sessions() == 0
            assert_sound(observer, batch_id)

    await eventually(lambda: aside(look))


async def repeated(deed: Deed, batch: Batch, ox: Oxpull, *, was_done: bool) -> None:
    """The deed can be done again; that it was done already is no surprise."""
    with anyio.fail_after(10):
        try:
            await deed.call(batch, ox)
        except deed.again:
            assert was_done


@every_deed
async def test_a_cancel_at_any_await_leaves_nothing_by_half(
    migrated_url: str, keeper: Oxpull, competitor: Competitor, deed: Deed
):
    async with declare(Oxpull(migrated_url, pool_size=2, pool_timeout=5)) as ox:
        for kind, moment in ways():
            for at in points(MOST):
                batch_id = await prepared(keeper, competitor, deed)
                batch = await ox.batches.get(batch_id)

                outcome = await cancelled_at(_result(deed.call(batch, ox)), at, moment, kind)

                await at_rest(competitor, batch_id)
                was_done = deed.done(competitor, batch_id)
                if outcome.value is not None:
                    assert was_done
                await repeated(deed, batch, ox, was_done=was_done)
                assert deed.done(competitor, batch_id)
                assert_sound(competitor, batch_id)
                if not outcome.struck:
                    break
            else:
                raise AssertionError("it never came to an end")


async def _result(call: Awaitable[Any]) -> Any:
    return (await call,)


@pytest.mark.engines("postgres", "mysql")
@every_deed
async def test_it_outlives_the_death_of_every_connection_at_any_statement(
    migrated_url: str, keeper: Oxpull, competitor: Competitor, deed: Deed
):
    for moment in sides():
        await outlives_dead_connections(migrated_url, keeper, competitor, deed, moment)


async def outlives_dead_connections(
    url: str, keeper: Oxpull, competitor: Competitor, deed: Deed, moment: FaultMoment
) -> None:
    def kill_all() -> None:
        for session in set(competitor.sessions()) - kept:
            competitor.kill(session)

    for at in points(MOST):
        batch_id = await prepared(keeper, competitor, deed)
        kept = set(competitor.sessions())
        async with declare(Oxpull(url, pool_size=2)) as ox:
            batch = await ox.batches.get(batch_id)
            fault = Fault(at, moment, kill_all)
            fault.install(ox)

            await deed.call(batch, ox)
            if deed.settled and not deed.done(competitor, batch_id):
                await ox.batches.reconcile()

            await at_rest(competitor, batch_id)
            assert deed.done(competitor, batch_id)
        if not fault.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


@every_deed
async def test_an_answer_that_is_lost_does_it_once(
    migrated_url: str, keeper: Oxpull, competitor: Competitor, deed: Deed
):
    for at in points(MOST):
        batch_id = await prepared(keeper, competitor, deed)
        async with declare(Oxpull(migrated_url)) as ox:
            batch = await ox.batches.get(batch_id)
            before, fault = members(competitor, batch_id), Fault(at, "unheard")
            fault.install(ox)

            await deed.call(batch, ox)
            if deed.settled and not deed.done(competitor, batch_id):
                await ox.batches.reconcile()

            await at_rest(competitor, batch_id)
            assert deed.done(competitor, batch_id)
            assert members(competitor, batch_id) - before in (0, 1, 3, 5)
        if not fault.struck:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


@every_deed
async def test_the_death_of_the_process_at_any_statement_leaves_nothing_by_half(
    migrated_url: str, keeper: Oxpull, competitor: Competitor, doomed: Doomed, deed: Deed
):
    for at in points(MOST):
        batch_id = await prepared(keeper, competitor, deed)
        killed = await aside(doomed.run, run_and_die, migrated_url, deed.name, batch_id, at)

        await at_rest(competitor, batch_id)
        batch = await keeper.batches.get(batch_id)
        await repeated(deed, batch, keeper, was_done=deed.done(competitor, batch_id))
        assert deed.done(competitor, batch_id)
        assert_sound(competitor, batch_id)
        if not killed:
            assert at > 1
            return
    raise AssertionError("it never came to an end")


async def run_and_die(url: str, name: str, batch_id: UUID, at: int) -> None:
    """What a doomed process does: the deed, and after its nth statement it dies."""
    async with declare(Oxpull(url)) as ox:
        batch = await ox.batches.get(batch_id)
        Fault(at, "after", die).install(ox)
        await BY_NAME[name].call(batch, ox)


async def test_what_was_created_twice_by_a_lost_answer_is_one_batch(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url) as ox:
        Fault(1, "unheard").install(ox)

        batch = await ox.batches.create("proof")

        assert await batch.status() is BatchStatus.OPEN
    assert competitor.rows(f"SELECT COUNT(*) FROM {BATCHES}") == [(1,)]
    assert batch.id != new_id()
