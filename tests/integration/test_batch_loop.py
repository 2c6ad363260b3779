"""The reconciler's loop: hints, sweeps, who leads, and what happens when any of them fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio
import pytest

from oxpull_async import Batch, BatchStatus, ConnectionLost, Oxpull, Worker
from oxpull_async.runtime import reconciling
from tests.eventually import eventually
from tests.integration.batching import Tasks, Watched
from tests.integration.competitor import Competitor, aside

NEVER = 3600.0


@pytest.fixture
def tasks(ox: Oxpull) -> Tasks:
    return Tasks(ox)


@pytest.fixture
def seen(competitor: Competitor, tasks: Tasks) -> Watched:
    return Watched(competitor, tasks)


@pytest.fixture
def hints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first sweep a loop makes no other."""
    pace(monkeypatch, leading=NEVER, busy=NEVER, following=NEVER)


def pace(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    for name, value in seconds.items():
        setting = (value, value) if name == "following" else value
        monkeypatch.setattr(reconciling, f"{name.upper()}_SECONDS", setting)


@pytest.fixture
async def swept(ox: Oxpull) -> AsyncIterator[Oxpull]:
    """An `Oxpull` whose loop has made its first sweep."""
    async with ox.running():
        await has_swept(ox)
        yield ox


async def has_swept(ox: Oxpull) -> None:
    await eventually(lambda: ox.batches._reconciler.last_pass is not None)


async def completes(batch: Batch) -> None:
    await batch.wait(timeout=20)


def leaders(competitor: Competitor) -> list[tuple[str, str]]:
    return [(role, holder) for role, holder in competitor.rows("SELECT role, holder FROM oxpull_async_leader")]


# Hints


@pytest.mark.usefixtures("hints_alone")
async def test_the_last_member_that_a_worker_settles_completes_the_batch(swept: Oxpull, tasks: Tasks, seen: Watched):
    async with swept.batches.create("proof", on_complete=tasks.done, on_success=tasks.cheer) as batch:
        await batch.add_many(tasks.work, [(number,) for number in range(300)])

    async with swept.running(worker=Worker(swept)):
        await completes(batch)

    assert seen.state(batch) == ("COMPLETE", 300, 0)


@pytest.mark.usefixtures("hints_alone")
async def test_a_seal_after_the_last_member_completes_the_batch(swept: Oxpull, tasks: Tasks, seen: Watched):
    batch = await swept.batches.create("proof")
    seen.settle([(await batch.add(tasks.work)).id], "SUCCESSFUL")

    await batch.seal()

    await completes(batch)


@pytest.mark.usefixtures("hints_alone")
async def test_a_seal_in_a_transaction_of_ours_is_a_hint_once_it_is_committed(swept: Oxpull):
    async with swept.transaction() as tx, tx.batches.create("proof") as batch:
        pass

    await completes(batch)


@pytest.mark.usefixtures("hints_alone")
async def test_an_operators_discard_is_a_hint(swept: Oxpull, tasks: Tasks):
    async with swept.batches.create("proof") as batch:
        member = await batch.add(tasks.work)
    await eventually(lambda: len(swept.batches._reconciler._witnesses.tasks) == 1)

    await swept.actions.discard(member.id)

    await completes(batch)


@pytest.mark.usefixtures("hints_alone")
async def test_a_member_that_is_settled_while_the_loop_looks_at_it_is_not_missed(
    swept: Oxpull, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
):
    scan = swept.store.batches.scan
    struck = False

    async def late(*args: Any, **kwargs: Any) -> Any:
        nonlocal struck
        found = await scan(*args, **kwargs)
        if found.pending is not None and not struck:
            struck = True
            await swept.actions.discard(found.pending)  # after it was seen pending, before it is a witness
        return found

    monkeypatch.setattr(swept.store.batches, "scan", late)
    async with swept.batches.create("proof") as batch:
        await batch.add(tasks.work)

    await completes(batch)
    assert struck


@pytest.mark.engines("postgres")
@pytest.mark.usefixtures("hints_alone")
async def test_a_seal_elsewhere_is_told_to_the_worker_that_settles_the_members(
    ox: Oxpull, tasks: Tasks, migrated_url: str
):
    async with Oxpull(migrated_url, reconciler="external") as elsewhere, ox.running():
        await has_swept(ox)
        batch = await elsewhere.batches.create("proof")
        async with ox.running(worker=Worker(ox)):
            member = await batch.add(elsewhere.reference(tasks.work.path).using(run_after=3600))
            await eventually(lambda: any(service.name == "listener" for service in ox.health.roster.services))
            await batch.seal()
            await eventually(lambda: ox.batches._reconciler._witnesses.tasks == [member.id])

            await ox.actions.discard(member.id)

            await completes(batch)


# Sweeps


async def test_without_any_hint_a_sweep_completes_the_batch(swept: Oxpull, tasks: Tasks, seen: Watched):
    async with swept.batches.create("proof", on_complete=tasks.done) as batch:
        member = await batch.add(tasks.work)
    seen.settle([member.id], "SUCCESSFUL")

    await completes(batch)

    assert seen.callbacks() == ["done"]


async def test_members_that_settle_while_a_seal_is_open_are_found_after_its_commit(
    swept: Oxpull, tasks: Tasks, seen: Watched, dialect: str
):
    batch = await swept.batches.create("proof")
    members = [await batch.add(tasks.work, number) for number in range(3)]
    async with swept.transaction() as tx:
        await (await tx.batches.get(batch.id)).seal()
        if dialect != "sqlite":
            await swept.actions.discard_many([member.id for member in members])
    if dialect == "sqlite":  # nobody else writes while a transaction is open
        await swept.actions.discard_many([member.id for member in members])

    await completes(batch)
    assert seen.state(batch) == ("COMPLETE", 3, 0)


async def test_a_batch_that_was_sealed_uncounted_is_counted_by_a_sweep(swept: Oxpull, tasks: Tasks, seen: Watched):
    batch = await swept.batches.create("proof")
    await batch.add(tasks.work)
    seen.write(batch, status="SEALED", sealed_at=datetime.now(UTC))

    await eventually(lambda: seen.state(batch) == ("SEALED", 1, None))


# Who leads


@pytest.mark.usefixtures("hints_alone")
async def test_a_follower_sweeps_too(
    ox: Oxpull, tasks: Tasks, seen: Watched, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    pace(monkeypatch, following=0.05)
    competitor.run(
        "INSERT INTO oxpull_async_leader (role, holder, expires_at) VALUES (?, ?, ?)",
        ox.batches._reconciler.role, "stalled", datetime.now(UTC) + timedelta(seconds=9),
    )  # fmt: skip
    async with ox.running():
        async with ox.batches.create("proof") as batch:
            member = await batch.add(tasks.work)
        seen.settle([member.id], "SUCCESSFUL")

        await completes(batch)

        assert [holder for _, holder in leaders(competitor)] == ["stalled"]


@pytest.mark.parametrize("ahead", [timedelta(seconds=-1), timedelta(hours=1)], ids=["dead", "clock set back"])
async def test_the_role_of_a_leader_that_is_gone_is_taken_over(ox: Oxpull, competitor: Competitor, ahead: timedelta):
    competitor.run(
        "INSERT INTO oxpull_async_leader (role, holder, expires_at) VALUES (?, ?, ?)",
        ox.batches._reconciler.role, "gone", datetime.now(UTC) + ahead,
    )  # fmt: skip

    async with ox.running():
        await eventually(lambda: [holder for _, holder in leaders(competitor)] != ["gone"])
    assert await ox.batches.last_led() is None or leaders(competitor) == []


async def test_of_several_processes_one_leads_and_gives_the_role_up_as_it_ends(
    ox: Oxpull, migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url) as other, ox.running():
        await eventually(lambda: len(leaders(competitor)) == 1)
        async with other.running():
            await has_swept(other)
            assert len(leaders(competitor)) == 1
            assert await other.batches.last_led() is not None

    assert leaders(competitor) == []


async def test_batches_whose_callback_the_leader_does_not_know_have_a_leader_of_their_own(
    ox: Oxpull, migrated_url: str, seen: Watched, tasks: Tasks, competitor: Competitor
):
    async with Oxpull(migrated_url) as stranger, stranger.running():
        await has_swept(stranger)
        async with ox.running():
            await eventually(lambda: len(leaders(competitor)) == 2)
            async with ox.batches.create("proof", on_complete=tasks.done) as batch:
                member = await batch.add(tasks.work)
            seen.settle([member.id], "SUCCESSFUL")

            await completes(batch)


# Its life


async def test_blocks_that_overlap_share_one_loop(ox: Oxpull, tasks: Tasks):
    async with ox.running(worker=Worker(ox)):
        await has_swept(ox)
        async with ox.running():
            assert [service.name for service in ox.health.roster.services].count("reconciler") == 1
        async with ox.batches.create("proof") as batch:
            await batch.add(tasks.work)
        await completes(batch)

    assert "reconciler" not in [service.name for service in ox.health.roster.services]


async def test_a_worker_of_its_own_completes_batches(ox: Oxpull, tasks: Tasks):
    async with ox.batches.create("proof") as batch:
        await batch.add(tasks.work)
    worker = Worker(ox)

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await completes(batch)
        worker.stop()


async def test_it_does_not_run_where_it_is_not_wanted(ox: Oxpull, migrated_url: str):
    async with ox.batches.create("proof") as batch:
        pass
    async with ox.running(reconciler=False):
        assert "reconciler" not in [service.name for service in ox.health.roster.services]
    async with Oxpull(migrated_url, reconciler=False) as without, without.running():
        assert "reconciler" not in [service.name for service in without.health.roster.services]

    assert await batch.status() is BatchStatus.SEALED


async def test_it_outlives_a_database_that_is_away_for_a_while(
    ox: Oxpull, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
):
    sealed, failures = ox.store.batches.sealed, 0

    async def away(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise ConnectionLost("as it happens")
        return await sealed(*args, **kwargs)

    monkeypatch.setattr(ox.store.batches, "sealed", away)
    async with ox.batches.create("proof") as batch:
        pass

    async with ox.running():
        await completes(batch)

    assert failures >= 4


async def test_many_batches_at_once_all_complete(swept: Oxpull, tasks: Tasks, seen: Watched):
    batches: list[Batch] = []
    async with swept.running(worker=Worker(swept)):
        for number in range(40):
            async with swept.batches.create(f"proof {number}", on_complete=tasks.done) as batch:
                await batch.add_many(tasks.work, [(n,) for n in range(5)])
                await batch.add(tasks.failing)
            batches.append(batch)
        for batch in batches:
            await completes(batch)

    assert {seen.state(batch) for batch in batches} == {("COMPLETE", 6, 1)}
    assert await aside(seen.callbacks) == ["done"] * 40


async def test_an_unknown_batch_that_is_hinted_at_is_nothing(swept: Oxpull):
    swept._batching._loop.hear_sealed(uuid4())
    async with swept.batches.create("proof") as batch:
        pass

    await completes(batch)
