"""What a cancel, a competitor, a deadlock or a lost server leave of a Django transaction that we took part in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

import psycopg
from anyio.lowlevel import cancel_shielded_checkpoint
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, connection, connections, transaction
from django_ox.models import OxTask
from django_project.databases import lead_django_to
from django_project.tasks import failing, plain
from stopping import stopped_at

from oxpull_async import (
    ConnectionLost,
    Oxpull,
    TransactionRolledBack,
    UniqueEnqueueRace,
)
from oxpull_async.core.keys import unique_key
from oxpull_async.drivers import _savepoints
from oxpull_async.integrations.django import DjangoConnection, aatomic
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("django_here")]
servers = pytest.mark.engines("postgres", "mysql")

PATH = "django_project.tasks.plain"
KEY = unique_key("default", PATH, "default", (7,), {})


class Undone(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture
def bound(ox: Oxpull):
    return ox.bind(DjangoConnection())


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as competitor:
        yield competitor


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


async def waits(watcher: Competitor) -> None:
    await eventually(lambda: watcher.waiting_sessions() == 1)


async def cancelled(call: asyncio.Future[Any]) -> None:
    """Cancel it, and see that it hears of that."""
    call.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not call.done()


@servers
async def test_a_cancelled_call_is_undone_and_the_block_goes_on(bound, competitor: Competitor, watcher: Competitor):
    async with aatomic():
        await bound.enqueue(plain, 1)
        with competitor.holding(KEY):
            call = asyncio.ensure_future(bound.enqueue_unique(plain, 7))
            await waits(watcher)
            await cancelled(call)
        with pytest.raises(asyncio.CancelledError):
            await call
        undone = await OxTask.objects.acount()
        await bound.enqueue_unique(plain, 7)

    assert undone == 1
    assert watcher.counts() == (2, 1)


@pytest.mark.engines("postgres")  # InnoDB keeps what a row that was rolled back to a savepoint had locked
async def test_a_cancelled_call_leaves_nothing_that_others_wait_for(
    ox: Oxpull, bound, competitor: Competitor, watcher: Competitor
):
    with anyio.fail_after(30):
        async with aatomic():
            with competitor.holding(KEY):
                call = asyncio.ensure_future(bound.enqueue_unique(plain, 7))
                await waits(watcher)
                await cancelled(call)
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await ox.enqueue_unique(plain, 7)).created


@servers
async def test_a_block_that_is_cancelled_at_each_await_is_rolled_back(
    bound, competitor: Competitor, watcher: Competitor
):
    async with anyio.create_task_group() as group:

        async def block() -> None:
            async with aatomic():
                await bound.enqueue(plain, 1)
                await bound.enqueue_unique(plain, 7)

        with competitor.holding(KEY):
            group.start_soon(block)
            await waits(watcher)
            group.cancel_scope.cancel()
            for _ in range(5):
                await cancel_shielded_checkpoint()

    assert not await sync_to_async(lambda: connection.in_atomic_block)()
    assert watcher.counts() == (0, 0)


PATHS = {
    "new": (lambda bound, n: bound.enqueue_unique(plain, n), None),
    "duplicate": (lambda bound, n: bound.enqueue_unique(plain, n), "READY"),
    "take-over": (lambda bound, n: bound.enqueue_unique(plain, n), "FAILED"),
    "bulk": (lambda bound, n: bound.enqueue_unique_many(plain, [(n,), (n + 500,)]), None),
    "bulk-take-over": (lambda bound, n: bound.enqueue_unique_many(plain, [(n,), (n + 500,)]), "FAILED"),
    "plain": (lambda bound, n: bound.enqueue(plain, n), None),
    "plain-bulk": (lambda bound, n: bound.enqueue_many(plain, [(n,), (n + 500,)]), None),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("by", ["task", "scope"])
async def test_a_cancel_at_any_await_leaves_the_block_and_no_savepoint(
    ox: Oxpull, bound, watcher: Competitor, path: str, by: str
):
    call, status = PATHS[path]
    for number in range(1, 40):
        if status:
            holder = await ox.enqueue_unique(plain, number)
            watcher.set_task(holder.id, task_path="held", status=status)
        async with aatomic():
            own = [await failing.aenqueue(f"{number} before")]
            first = next(_savepoints._numbers)
            reached = await stopped_at(number, call(bound, number), by)
            own.append(await failing.aenqueue(f"{number} after"))
            left = [f"oxpull_{n}" for n in range(first + 1, next(_savepoints._numbers))]
            assert await sync_to_async(_still_open)(left) == []
        assert {UUID(result.id) for result in own} <= watcher.statuses().keys()
        assert set(watcher.locks().values()) <= watcher.statuses().keys()
        if not reached:
            break

    assert 1 < number < 39
    await ox.enqueue_unique(plain, 1)  # nothing is in the way of others


def _still_open(savepoints: list[str]) -> list[str]:
    found = []
    for name in savepoints:
        with suppress(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"RELEASE SAVEPOINT {name}")
            found.append(name)
    return found


async def test_a_cancel_while_a_block_is_entered_does_not_leave_it_open(monkeypatch):
    entering, go_on = threading.Event(), threading.Event()
    enter = transaction.Atomic.__enter__

    def slow(self: transaction.Atomic) -> None:
        entering.set()
        go_on.wait(10)
        enter(self)

    monkeypatch.setattr(transaction.Atomic, "__enter__", slow)

    async def block() -> None:
        async with aatomic():
            raise AssertionError("was never to begin")

    task = asyncio.ensure_future(block())
    await aside(entering.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await sync_to_async(lambda: connection.in_atomic_block)()


async def test_a_cancel_while_a_block_commits_comes_after_the_commit(bound, watcher: Competitor, monkeypatch):
    leaving, go_on = threading.Event(), threading.Event()
    leave = transaction.Atomic.__exit__

    def slow(self: transaction.Atomic, *outcome) -> None:
        leaving.set()
        go_on.wait(10)
        leave(self, *outcome)

    async def block() -> None:
        async with aatomic():
            await bound.enqueue(plain, 1)
            monkeypatch.setattr(transaction.Atomic, "__exit__", slow)

    task = asyncio.ensure_future(block())
    await aside(leaving.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert watcher.counts() == (1, 0)


@servers
async def test_a_competitor_that_commits_is_found(bound, competitor: Competitor, watcher: Competitor):
    async with aatomic():
        competitor.begin()
        theirs = competitor.insert_unique(KEY)
        call = asyncio.ensure_future(bound.enqueue_unique(plain, 7))
        await waits(watcher)
        competitor.commit()
        ours = await call

    assert (ours.id, ours.created) == (theirs, False)


@servers
async def test_a_competitor_that_outlasts_the_wait_leaves_the_block_usable(bound, competitor: Competitor):
    async with aatomic():
        await bound.enqueue(plain, 1)
        await sync_to_async(_be_impatient)()
        with competitor.holding(KEY), pytest.raises(UniqueEnqueueRace) as caught:
            await bound.enqueue_unique(plain, 7)
        await bound.enqueue(plain, 2)

    assert (caught.value.reason, caught.value.retry) == ("lock_wait", "call")
    assert competitor.counts() == (2, 0)


def _be_impatient() -> None:
    """A task of Django's has no wait of its own, so the bound is the session's."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL lock_timeout = '200ms'"
            if connection.vendor == "postgresql"
            else "SET SESSION innodb_lock_wait_timeout = 1"
        )


@pytest.mark.engines("mysql")
async def test_a_deadlock_that_costs_the_transaction_is_told_and_ends_the_block(
    bound, competitor: Competitor, watcher: Competitor
):
    task_id = competitor.insert_task()
    competitor.begin()
    for _ in range(5):
        competitor.insert_task()  # the lighter transaction is the victim
    competitor.insert_unique(KEY)

    with pytest.raises(TransactionRolledBack):
        async with aatomic():
            await sync_to_async(lambda: list(OxTask.objects.select_for_update().filter(id=task_id)))()
            call = asyncio.ensure_future(bound.enqueue_unique(plain, 7))
            await waits(watcher)
            await aside(competitor.rows, "SELECT id FROM django_ox_oxtask WHERE id = ? FOR UPDATE", task_id)
            with pytest.raises(TransactionRolledBack):
                await call
            await bound.enqueue(plain, 1)
    competitor.rollback()

    assert watcher.counts() == (1, 0)


@servers
async def test_a_lost_server_is_told_and_the_next_block_connects_anew(bound, competitor: Competitor):
    with pytest.raises(ConnectionLost):
        async with aatomic():
            await bound.enqueue(plain, 1)
            competitor.kill(await sync_to_async(_session)())
            await bound.enqueue_unique(plain, 7)

    async with aatomic():
        await bound.enqueue_unique(plain, 7)
    assert competitor.counts() == (1, 1)


def _session() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


@servers
@pytest.mark.parametrize("fate", ["stays", "settled", "gone"])
async def test_what_a_snapshot_shows_is_checked_against_what_is_committed(
    bound, ox: Oxpull, migrated_url: str, competitor: Competitor, dialect: str, fate: str
):
    level = psycopg.IsolationLevel.REPEATABLE_READ if dialect == "postgres" else "repeatable read"
    await sync_to_async(lead_django_to)(migrated_url, isolation_level=level)
    holder = await ox.enqueue_unique(plain, 7)

    async with aatomic():
        assert await OxTask.objects.acount() == 1  # the snapshot is taken
        if fate == "settled":
            competitor.set_task(holder.id, status="SUCCESSFUL")
        elif fate == "gone":
            competitor.delete_task(holder.id)
        if fate == "stays":
            found = await bound.enqueue_unique(plain, 7)
            assert (found.id, found.created) == (holder.id, False)
        elif dialect == "postgres" or await sync_to_async(_isolates_snapshots)():
            with pytest.raises(UniqueEnqueueRace) as caught:
                await bound.enqueue_unique(plain, 7)
            assert caught.value.retry == "transaction"
        else:
            found = await bound.enqueue_unique(plain, 7)
            assert found.created


def _isolates_snapshots() -> bool:
    """MariaDB from 11.6 on gives up a transaction that touches what others have changed since its snapshot."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
        row = cursor.fetchone()
    return row is not None and row[1] == "ON"


async def test_the_own_connection_of_an_oxpull_does_not_join(ox: Oxpull, watcher: Competitor, dialect: str):
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time: the block itself is in the way")

    def place() -> None:
        with transaction.atomic():
            OxTask.objects.count()
            async_to_sync(ox.enqueue_unique)(plain, 7)
            raise Undone

    with pytest.raises(Undone):
        await sync_to_async(place)()

    assert watcher.counts() == (1, 1)


@pytest.mark.parametrize("end", ["commit", "undo"])
async def test_after_the_commit_comes_what_was_left_for_it(ox: Oxpull, watcher: Competitor, end: str):
    def place() -> None:
        with transaction.atomic():
            DjangoConnection().on_commit(ox.enqueue_unique, plain, 7)
            assert watcher.counts() == (0, 0)
            if end == "undo":
                raise Undone

    if end == "undo":
        with pytest.raises(Undone):
            await sync_to_async(place)()
    else:
        await sync_to_async(place)()

    assert watcher.counts() == ((1, 1) if end == "commit" else (0, 0))


async def test_after_the_commit_of_an_async_block_too(ox: Oxpull, watcher: Competitor):
    async with aatomic():
        await sync_to_async(DjangoConnection().on_commit)(ox.enqueue_unique, plain, 7)
        assert watcher.counts() == (0, 0)

    assert watcher.counts() == (1, 1)
    await sync_to_async(connections.close_all)()
