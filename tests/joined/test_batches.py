"""Batches in a caller's transaction: what is done there lives and dies with it, and no snapshot makes a total wrong."""

from __future__ import annotations

import pytest

from oxpull_async import (
    BatchMemberExists,
    BatchNotFound,
    BatchSealed,
    BatchStatus,
    InvalidArguments,
    Oxpull,
    SerializationFailure,
    TransactionRolledBack,
)
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import own_rows
from tests.joined.handles import Caller

BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"


@pytest.fixture
def work(ox: Oxpull) -> AnyTask:
    """A plain task, of which only the path is known here."""
    return ox.reference("proof.work")


def batch_rows(competitor: Competitor) -> tuple[int, ...]:
    """How many batches there are, and how many members, as committed."""
    return tuple(competitor.rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in (BATCHES, MEMBERS))


async def is_usable(caller: Caller) -> None:
    await caller.order(99)
    assert 99 in await caller.orders()


async def test_all_of_it_commits_with_the_callers_rows(
    ox: Oxpull, send: AnyTask, work: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    await caller.begin(level)
    await caller.order(1)
    bound = ox.bind(caller.bindable)
    async with bound.batches.create("proof") as batch:
        first = await batch.add(send, 1)
        second = await batch.add(work, 2)
        many = await batch.add_many(work, [(3,), (4,)])
        again = await batch.add_many(send, [(1,), (5,)])
        assert (await batch.progress()).pending == 5
    assert await batch.status() is BatchStatus.SEALED
    assert len([member async for member in batch.members()]) == 5
    assert "5 of 5" in (await batch.explain()).reason
    assert (await bound.batches.get(batch.id)).name == "proof"
    assert competitor.counts() == (0, 0)
    assert batch_rows(competitor) == (0, 0)
    await caller.commit()

    assert [each.already_member for each in again] == [True, False]
    assert set(competitor.statuses()) == {first.id, second.id, *(each.id for each in many), again[1].id}
    assert batch_rows(competitor) == (1, 5)
    assert own_rows(competitor) == {1}
    await ox.actions.discard_many(competitor.statuses())
    assert await ox.batches.reconcile() == 1
    assert (await (await ox.batches.get(batch.id)).progress()).total == 5


async def test_all_of_it_rolls_back_with_the_callers_rows(
    ox: Oxpull, send: AnyTask, work: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    batch = await ox.batches.create("proof")
    await batch.add(work, 1)

    await caller.begin(level)
    mine = await ox.bind(caller.bindable).batches.get(batch.id)
    await mine.add(send, 1)
    await mine.add_many(work, [(2,)])
    await mine.seal()
    async with ox.bind(caller.bindable).batches.create("other"):
        pass
    await caller.rollback()

    assert competitor.counts() == (1, 0)
    assert batch_rows(competitor) == (1, 1)
    assert await batch.status() is BatchStatus.OPEN
    assert (await batch.progress()).total == 1


async def test_the_first_statement_of_the_transaction_may_be_a_batchs(
    ox: Oxpull, work: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    batch = await ox.batches.create("proof")

    await caller.begin(level)
    await (await ox.bind(caller.bindable).batches.get(batch.id)).add(work, 1)
    await caller.rollback()
    await caller.begin(level)
    assert await (await ox.bind(caller.bindable).batches.get(batch.id)).seal() in (0, None)
    await caller.rollback()

    assert competitor.counts() == (0, 0)
    assert await batch.status() is BatchStatus.OPEN


async def test_what_is_refused_leaves_the_transaction_usable(
    ox: Oxpull, send: AnyTask, work: AnyTask, caller: Caller, level: str, competitor: Competitor
):
    open_, sealed = await ox.batches.create("open"), await ox.batches.create("sealed")
    await sealed.seal()
    await open_.add(send, 1)

    await caller.begin(level)
    bound = ox.bind(caller.bindable).batches
    mine = await bound.get(open_.id)
    with pytest.raises(BatchMemberExists):
        await mine.add(send, 1)
    with pytest.raises(InvalidArguments):
        await mine.add(work, {1})
    closed = await bound.get(sealed.id)
    for call in (closed.add(work, 1), closed.add(send, 2), closed.add_many(work, [(1,)]), closed.seal()):
        with pytest.raises(BatchSealed):
            await call
    with pytest.raises(BatchNotFound):
        await bound.get("018f0000-0000-7000-8000-000000000000")
    await mine.add(work, 2)
    await is_usable(caller)
    await caller.commit()

    assert competitor.counts() == (2, 1)
    assert (await open_.progress()).total == 2


@pytest.mark.engines("postgres", "mysql")
async def test_an_addition_after_anothers_in_a_snapshot(
    ox: Oxpull,
    work: AnyTask,
    caller: Caller,
    snapshot_level: str,
    competitor: Competitor,
    dialect: str,
):
    batch = await ox.batches.create("proof")
    await caller.begin(snapshot_level)
    mine = await ox.bind(caller.bindable).batches.get(batch.id)
    if snapshot_level == "SERIALIZABLE" and dialect == "mysql":
        return  # its plain reads lock, so nobody else could have added
    await batch.add(work, 1)

    if dialect == "mysql":
        await mine.add(work, 2)
    else:
        with pytest.raises(SerializationFailure, match="repeat all of it"):
            await mine.add(work, 2)
    await is_usable(caller)
    await caller.commit()

    assert (await batch.progress()).total == (2 if dialect == "mysql" else 1)
    assert competitor.counts()[0] == (2 if dialect == "mysql" else 1)


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.parametrize("unique", [False, True])
async def test_a_seal_in_a_snapshot_never_misses_a_member_that_was_committed_since(
    ox: Oxpull,
    send: AnyTask,
    work: AnyTask,
    caller: Caller,
    snapshot_level: str,
    competitor: Competitor,
    dialect: str,
    unique: bool,
):
    batch = await ox.batches.create("proof")
    first = await batch.add(work, 1)
    await caller.begin(snapshot_level)
    mine = await ox.bind(caller.bindable).batches.get(batch.id)
    if snapshot_level == "SERIALIZABLE" and dialect == "mysql":
        return
    late = await batch.add(*((send, 2) if unique else (work, 2)))

    if dialect == "postgres":
        with pytest.raises(SerializationFailure):
            await mine.seal()
        await is_usable(caller)
        await caller.commit()
        assert await batch.status() is BatchStatus.OPEN
        return
    assert await mine.seal() is None
    await caller.commit()
    competitor.set_task(first.id, status="SUCCESSFUL")
    competitor.set_task(late.id, status="LOST")

    assert await ox.batches.reconcile() == 1
    row = competitor.rows(f"SELECT total_count, failed_count FROM {BATCHES} WHERE id = ?", batch.id)
    assert row == [(2, 0)]
    assert (await batch.progress()).unattributed == 1


@pytest.mark.engines("postgres", "mysql")
async def test_a_seal_in_a_snapshot_after_which_nobody_has_added(
    ox: Oxpull, work: AnyTask, caller: Caller, snapshot_level: str, competitor: Competitor, dialect: str
):
    batch = await ox.batches.create("proof")
    await batch.add(work, 1)

    await caller.begin(snapshot_level)
    mine = await ox.bind(caller.bindable).batches.get(batch.id)
    await mine.add(work, 2)
    assert await mine.seal() == (None if dialect == "mysql" else 2)
    await caller.commit()

    assert (await batch.progress()).total == 2


@pytest.mark.engines("postgres", "mysql")
async def test_an_addition_in_a_snapshot_after_a_seal_was_committed(
    ox: Oxpull,
    work: AnyTask,
    caller: Caller,
    snapshot_level: str,
    competitor: Competitor,
    dialect: str,
    isolates_snapshots: bool,
):
    batch = await ox.batches.create("proof")
    await caller.begin(snapshot_level)
    mine = await ox.bind(caller.bindable).batches.get(batch.id)
    if snapshot_level == "SERIALIZABLE" and dialect == "mysql":
        return
    await batch.seal()

    if dialect == "postgres":
        with pytest.raises(SerializationFailure):
            await mine.add(work, 1)
    elif isolates_snapshots:
        with pytest.raises(TransactionRolledBack):
            await mine.add(work, 1)
    else:
        with pytest.raises(BatchSealed):
            await mine.add(work, 1)
    await caller.rollback()

    assert competitor.counts() == (0, 0)
