"""One batch, whichever side creates, fills, seals, works off, reads and completes it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_project import tasks
from peers import Peer, started_peer
from reconcilers import Mortal, MortalPeer

from oxpull_async import Batch, BatchMemberExists, BatchNotFound, BatchSealed, InvalidTask, Oxpull, SerializationFailure
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.scale import rounds

pytestmark = pytest.mark.timeout(180)

NOWHERE = "sqlite:///unused.db"
ON_COMPLETE, ON_SUCCESS = "django_project.tasks.on_complete", "django_project.tasks.on_success"
BATCHES, MEMBERS, TASKS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember", "django_ox_oxtask"


@pytest.fixture(scope="session")
def batch_peers() -> Iterator[list[Peer]]:
    with started_peer("django_project.batch_peer") as one, started_peer("django_project.batch_peer") as two:
        yield [one, two]


@pytest.fixture
def fleet(batch_peers: list[Peer], migrated_url: str) -> Iterator[list[Peer]]:
    for peer in batch_peers:
        peer.order("lead_to", migrated_url)
    yield batch_peers
    for peer in batch_peers:
        peer.order("lead_to", NOWHERE)


@pytest.fixture
def peer(fleet: list[Peer]) -> Peer:
    return fleet[0]


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


@pytest.fixture
def known(ox: Oxpull) -> Oxpull:
    """The callbacks of the Django project are tasks here too."""
    return with_callbacks(ox)


def with_callbacks(ox: Oxpull) -> Oxpull:
    for name in ("on_complete", "on_success"):

        async def callback(*args: Any, **kwargs: Any) -> None: ...

        callback.__module__, callback.__qualname__ = "django_project.tasks", name
        ox.task(callback)
    return ox


def row(watcher: Competitor, batch_id: UUID | str) -> tuple[Any, ...]:
    (found,) = watcher.rows(
        f"SELECT status, total_count, failed_count FROM {BATCHES} WHERE id = ?", UUID(str(batch_id))
    )
    return found


def callbacks(watcher: Competitor) -> list[str]:
    rows = watcher.rows(f"SELECT task_path FROM {TASKS}")
    return sorted(path.rpartition(".")[2] for (path,) in rows if path in (ON_COMPLETE, ON_SUCCESS))


# One thing after another


async def test_theirs_is_added_to_sealed_and_completed_here(known: Oxpull, peer: Peer, watcher: Competitor):
    batch_id = await peer.tell("create_batch", "theirs", "on_complete", "on_success")
    theirs = await peer.tell("add", batch_id, "plain", [[1]])
    batch = await known.batches.get(batch_id)
    mine = await batch.add(tasks.plain, 2)
    shared = await batch.add(tasks.unique_plain, "a")
    with pytest.raises(BatchMemberExists):
        await batch.add(tasks.unique_plain, "a")

    assert await batch.seal() == 3
    assert await peer.tell("progress", batch_id) == [3, 3, 0, 0, 0]
    for task_id in (theirs[0], mine.id, shared.id):
        await peer.tell("settle", str(task_id))
    assert await known.batches.reconcile() == 1

    assert row(watcher, batch_id) == ("COMPLETE", 3, 0)
    assert callbacks(watcher) == ["on_complete", "on_success"]
    await peer.tell("work")
    assert await peer.tell("reconcile") == 0


async def test_ours_is_added_to_sealed_and_completed_there(ox: Oxpull, peer: Peer, watcher: Competitor):
    batch = await ox.batches.create("ours", on_complete=tasks.on_complete, on_success=ON_SUCCESS, pass_batch=True)
    mine = await batch.add(tasks.plain, 1)
    added = await batch.add_many(tasks.unique_plain, [("a",), ("b",)])
    (theirs,) = await peer.tell("add", str(batch.id), "plain", [[2]])

    await peer.tell("seal", str(batch.id))
    with pytest.raises(BatchSealed):
        await batch.add(tasks.plain, 3)
    await peer.tell("work")
    assert await ox.batches.reconcile() == 0  # the callbacks aren't declared here
    assert await peer.tell("reconcile") == 1

    assert {str(each.id) for each in [mine, *added]} | {theirs} <= {str(task_id) for task_id in watcher.statuses()}
    assert row(watcher, batch.id) == ("COMPLETE", 4, 0)
    progress = await batch.progress()
    assert [progress.total, progress.pending, progress.succeeded] == [4, 0, 4]
    assert await peer.tell("progress", str(batch.id)) == [4, 0, 4, 0, 0]
    ran = await peer.tell("work")
    assert ran is None
    (callback,) = watcher.rows(f"SELECT callback_task_id FROM {BATCHES} WHERE id = ?", batch.id)
    assert (await peer.tell("read", str(callback[0])))["kwargs"] == {"batch_id": str(batch.id)}


async def test_a_seal_that_left_its_total_open_is_completed_there(ox: Oxpull, peer: Peer, watcher: Competitor):
    batch = await ox.batches.create("ours", on_complete=tasks.on_complete, on_success=tasks.on_success)
    members = [await batch.add(tasks.plain, number) for number in range(2)]
    await batch.seal()
    watcher.run(f"UPDATE {BATCHES} SET total_count = NULL WHERE id = ?", batch.id)
    await peer.tell("settle", str(members[0].id))
    await peer.tell("settle", str(members[1].id), "LOST")

    assert await peer.tell("reconcile") == 1

    assert row(watcher, batch.id) == ("COMPLETE", 2, 0)
    assert callbacks(watcher) == ["on_complete"]


async def test_their_overridden_tasks_are_no_callbacks_here_either(ox: Oxpull):
    for callback in (tasks.on_complete.using(priority=3), tasks.unique_plain, tasks.immediate):
        with pytest.raises(InvalidTask):
            ox.batches.create("ours", on_complete=callback)


async def test_a_task_of_theirs_without_rows_is_no_member(ox: Oxpull, watcher: Competitor):
    batch = await ox.batches.create("ours")

    with pytest.raises(InvalidTask, match="ImmediateBackend"):
        await batch.add(tasks.immediate, 1)
    with pytest.raises(InvalidTask, match="ImmediateBackend"):
        await batch.add_many(tasks.immediate, [(1,)])

    assert watcher.counts() == (0, 0)


async def test_a_batch_that_their_orm_deletes_is_gone_and_its_tasks_are_not(
    ox: Oxpull, peer: Peer, watcher: Competitor
):
    batch = await ox.batches.create("ours")
    added = await batch.add_many(tasks.plain, [(1,), (2,)])

    assert await peer.tell("delete", str(batch.id)) == 3

    with pytest.raises(BatchNotFound):
        await batch.add(tasks.plain, 3)
    with pytest.raises(BatchNotFound):
        await batch.seal()
    assert watcher.rows(f"SELECT COUNT(*) FROM {MEMBERS}") == [(0,)]
    assert set(watcher.statuses()) == {each.id for each in added}


# At the same time


@pytest.mark.engines("postgres", "mysql")
async def test_their_seal_waits_for_additions_of_others_who_only_share_the_batchs_lock(
    ox: Oxpull, peer: Peer, watcher: Competitor, dialect: str
):
    batch = await ox.batches.create("ours")
    shared = "FOR SHARE" if dialect == "postgres" else "LOCK IN SHARE MODE"
    with watcher.another() as second, watcher.another() as observer:
        for other in (watcher, second):  # neither waits for the other
            other.begin()
            assert other.rows(f"SELECT status FROM {BATCHES} WHERE id = ? {shared}", batch.id) == [("OPEN",)]
            member = other.insert_task()
            columns = "(task_id, created_at, batch_id) VALUES (?, ?, ?)"
            other.run(f"INSERT INTO {MEMBERS} {columns}", member, datetime.now(UTC), batch.id)
        sealing = asyncio.ensure_future(peer.tell("seal", str(batch.id)))
        await eventually(partial(somebody_waits, observer))
        await aside(second.commit)
        await aside(watcher.commit)
        await sealing

    assert row(watcher, batch.id) == ("SEALED", 2, None)


async def test_seals_and_additions_of_both_sides_at_once(known: Oxpull, fleet: list[Peer], watcher: Competitor):
    for round_ in range(rounds(small=3, full=50)):
        batch = await known.batches.create(f"round {round_}")
        kept: list[UUID] = []

        async def ours(batch: Batch = batch, kept: list[UUID] = kept) -> None:
            number = 0
            try:
                while True:
                    kept.append((await batch.add(tasks.plain, number)).id)
                    number += 1
            except BatchSealed:
                return

        async with anyio.create_task_group() as group:
            theirs = asyncio.ensure_future(fleet[0].tell("add_until_sealed", str(batch.id), "plain"))
            group.start_soon(ours)
            group.start_soon(ours)
            await eventually(partial(is_longer, kept, 5))
            if round_ % 2:
                await batch.seal()
            else:
                await fleet[1].tell("seal", str(batch.id))
        both = {str(task_id) for task_id in kept} | set(await theirs)

        members = {str(UUID(str(found[0]))) for found in watcher.rows(
            f"SELECT task_id FROM {MEMBERS} WHERE batch_id = ?", batch.id
        )}  # fmt: skip
        assert members == both
        assert row(watcher, batch.id) == ("SEALED", len(both), None)
        assert watcher.rows(f"SELECT COUNT(*) FROM {TASKS} WHERE id NOT IN (SELECT task_id FROM {MEMBERS})") == [(0,)]


@pytest.mark.engines("postgres", "mysql")
async def test_their_seal_in_a_snapshot_counts_or_refuses_our_additions(
    ox: Oxpull, peer: Peer, watcher: Competitor, dialect: str
):
    batch = await ox.batches.create("ours")
    first = await batch.add(tasks.plain, 1)
    sealing = asyncio.ensure_future(peer.tell("seal_in_snapshot", str(batch.id), 1.0))
    await anyio.sleep(0.3)  # the snapshot is taken; the seal comes after this
    late = [await batch.add(tasks.plain, 2), *await batch.add_many(tasks.unique_plain, [("a",)])]
    outcome = await sealing

    if dialect == "postgres":
        assert (outcome, row(watcher, batch.id)) == ("OperationalError", ("OPEN", None, None))
    else:
        assert (outcome, row(watcher, batch.id)) == ("sealed", ("SEALED", 3, None))
    assert len({first.id, *(each.id for each in late)}) == 3


@pytest.mark.engines("postgres", "mysql")
async def test_our_seal_in_a_snapshot_counts_or_refuses_their_additions(
    known: Oxpull, peer: Peer, watcher: Competitor, dialect: str, migrated_url: str
):
    batch = await known.batches.create("ours", on_complete=ON_COMPLETE, on_success=ON_SUCCESS)
    first = await batch.add(tasks.plain, 1)
    async with snapshot(migrated_url) as (connection, run):
        mine = await known.bind(connection).batches.get(batch.id)
        (late,) = await peer.tell("add", str(batch.id), "plain", [[2]])
        if dialect == "postgres":
            with pytest.raises(SerializationFailure):
                await mine.seal()
            await run("ROLLBACK")
            await batch.seal()
        else:
            assert await mine.seal() is None
            await run("COMMIT")
    await peer.tell("settle", str(first.id))
    await peer.tell("settle", late, "LOST")

    assert await known.batches.reconcile() == 1
    assert row(watcher, batch.id) == ("COMPLETE", 2, 0)
    assert callbacks(watcher) == ["on_complete"]


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    """A connection in a REPEATABLE READ transaction, and how to end that."""
    parts = urlsplit(url)
    if parts.scheme == "postgresql":
        import asyncpg

        connection = await asyncpg.connect(url)
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        yield connection, connection.execute
        await connection.close()
        return
    import asyncmy

    connection = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=parts.password, db=parts.path[1:]
    )
    async with connection.cursor() as cursor:
        await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await cursor.execute("BEGIN")
        yield connection, cursor.execute
    connection.close()


# Reconcilers of both sides that are killed wherever they are


async def test_each_callback_comes_once_however_many_reconcilers_race_and_die(
    known: Oxpull, fleet: list[Peer], watcher: Competitor, migrated_url: str
):
    """Four of ours in two processes and two of theirs, all killed again and again, and two of ours here."""
    count, deaths = rounds(small=40, full=400), rounds(small=4, full=40)
    mortals = [Mortal(migrated_url) for _ in range(2)]
    theirs = [MortalPeer(peer) for peer in fleet]
    everyone: list[Mortal | MortalPeer] = [*mortals, *theirs]
    expected: dict[UUID, list[str]] = {}
    try:
        async with anyio.create_task_group() as group:
            for mortal in everyone:
                group.start_soon(for_ever, mortal.live_and_die)
            for _ in range(2):
                group.start_soon(for_ever, known.batches.reconcile)
            while len(expected) < count or min(_deaths(mortals), _deaths(theirs)) < deaths:
                batch, statuses = await settled_batch(known, watcher)
                expected[batch.id] = statuses
            await eventually(lambda: aside(all_are_complete, watcher), within=60)
            group.cancel_scope.cancel()
    finally:
        for mortal in mortals:
            mortal.close()

    successes = 0
    for batch_id, statuses in expected.items():
        assert row(watcher, batch_id) == ("COMPLETE", len(statuses), statuses.count("FAILED"))
        successes += set(statuses) <= {"SUCCESSFUL"}
    assert callbacks(watcher) == ["on_complete"] * len(expected) + ["on_success"] * successes
    named = watcher.rows(
        f"SELECT COUNT(*) FROM {BATCHES} WHERE callback_task_id NOT IN (SELECT id FROM {TASKS}) "
        f"OR success_task_id NOT IN (SELECT id FROM {TASKS})"
    )
    assert named == [(0,)]


def _deaths(mortals: Sequence[Mortal | MortalPeer]) -> int:
    return sum(mortal.deaths for mortal in mortals)


async def for_ever(deed: Callable[[], Awaitable[Any]]) -> None:
    while True:
        await deed()
        await anyio.sleep(0.02)


async def settled_batch(ox: Oxpull, watcher: Competitor) -> tuple[Batch, list[str]]:
    """A sealed batch whose members settle one by one, some of them twice."""
    statuses = random.choices(["SUCCESSFUL", "FAILED", "LOST"], weights=[6, 1, 1], k=random.randint(0, 4))
    async with ox.batches.create("race", on_complete=ON_COMPLETE, on_success=ON_SUCCESS) as batch:
        added = await batch.add_many(tasks.plain, [(number,) for number in range(len(statuses))])
    for each, status in zip(added, statuses, strict=True):
        await aside(settle, watcher, each.id, status)
        if random.random() < 0.1 and await ox.actions.retry(each.id):
            await aside(settle, watcher, each.id, status)
    return batch, statuses


def settle(watcher: Competitor, task_id: UUID, status: str) -> None:
    watcher.set_task(task_id, status=status)


async def somebody_waits(observer: Competitor) -> bool:
    return await aside(observer.waiting_sessions) == 1


def is_longer(found: list[UUID], length: int) -> bool:
    return len(found) > length


def all_are_complete(watcher: Competitor) -> bool:
    return watcher.rows(f"SELECT COUNT(*) FROM {BATCHES} WHERE status <> 'COMPLETE'") == [(0,)]
