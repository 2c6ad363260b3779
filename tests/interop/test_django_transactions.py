"""``ox.bind(DjangoConnection())``: what is enqueued lives and dies with Django's transaction."""

from __future__ import annotations

import asyncio
import contextvars

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import connection, connections, transaction
from django.test import AsyncClient
from django_ox.models import OxTask
from django_project import views
from django_project.databases import lead_django_to
from django_project.tasks import plain, unique_plain
from oxpull.models import OxpullUniqueLock

from oxpull_async import EnqueueResult, Oxpull, StoreError, TransactionRequired, TransactionRolledBack, WrongDatabase
from oxpull_async.exceptions import InvalidSettings, NotOpen
from oxpull_async.integrations.django import DjangoConnection, aatomic
from tests.servers.databases import Databases

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("django_here")]


class Undone(Exception):
    """Ends a transaction without a commit."""


async def rows() -> tuple[int, int]:
    """How many task rows and lock rows are committed, as a thread of its own sees it."""
    return await anyio.to_thread.run_sync(_counted)


def _counted() -> tuple[int, int]:
    try:
        return OxTask.objects.count(), OxpullUniqueLock.objects.count()
    finally:
        connection.close()


@pytest.fixture
def bound(ox: Oxpull):
    return ox.bind(DjangoConnection())


async def test_what_is_enqueued_in_a_block_is_committed_with_it(bound):
    async with aatomic():
        first = await bound.enqueue_unique(plain, 1)
        again = await bound.enqueue_unique(plain, 1)
        other = await bound.enqueue(plain, 1)
        before = await rows()

    assert before == (0, 0)
    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == first.id
    assert await rows() == (2, 1)


async def test_what_is_enqueued_in_a_block_is_rolled_back_with_it(bound):
    with pytest.raises(Undone):
        async with aatomic():
            await bound.enqueue_unique(plain, 1)
            await bound.enqueue_many(plain, [(1,), (2,)])
            await bound.enqueue_unique_many(plain, [(3,), (3,)])
            raise Undone

    assert await rows() == (0, 0)


async def test_rows_of_the_orm_and_of_ours_share_the_block(ox: Oxpull, bound):
    async with aatomic():
        theirs = await sync_to_async(unique_plain.enqueue)(1)
        ours = await bound.enqueue(unique_plain, 1)

        assert str(ours.id) == theirs.id
        assert not ours.created
        assert await OxTask.objects.acount() == 1


async def test_an_inner_block_is_rolled_back_alone(bound):
    async with aatomic():
        await bound.enqueue_unique(plain, 1)
        with pytest.raises(Undone):
            async with aatomic():
                await bound.enqueue_unique(plain, 2)
                raise Undone
        await bound.enqueue_unique(plain, 3)

    assert await rows() == (2, 2)


async def test_sync_code_in_a_block_enqueues_through_async_to_sync(bound):
    def place(commit: bool) -> EnqueueResult:
        with transaction.atomic():
            result = async_to_sync(bound.enqueue_unique)(unique_plain, 42)
            if not commit:
                raise Undone
        return result

    with pytest.raises(Undone):
        await sync_to_async(place)(commit=False)
    assert await rows() == (0, 0)

    result = await sync_to_async(place)(commit=True)
    assert result.created
    assert await rows() == (1, 1)


async def test_a_coroutine_under_sync_code_without_an_event_loop_joins_its_block(migrated_url: str):
    async def enqueue() -> EnqueueResult:
        async with Oxpull(migrated_url) as ox:
            return await ox.bind(DjangoConnection()).enqueue_unique(unique_plain, 42)

    def place() -> EnqueueResult:
        with transaction.atomic():
            result = async_to_sync(enqueue)()
        connection.close()
        return result

    result = await anyio.to_thread.run_sync(place)

    assert result.created
    assert await rows() == (1, 1)


@pytest.mark.parametrize("view", ["async", "sync"])
async def test_a_view_enqueues_in_its_transaction(ox: Oxpull, view: str, monkeypatch):
    monkeypatch.setattr(views, "oxen", [ox])
    client = AsyncClient()

    await client.get(f"/{view}/1/undo")
    assert await rows() == (0, 0)

    answers = [await client.get(f"/{view}/2/commit") for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert await rows() == (1, 1)


async def test_many_views_at_once_keep_their_transactions_apart(ox: Oxpull, dialect: str, monkeypatch):
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    monkeypatch.setattr(views, "oxen", [ox])

    async def visit(number: int) -> None:
        async with ThreadSensitiveContext():  # what Django's ASGI handler does for each request
            await AsyncClient().get(f"/async/{number}/{'undo' if number % 2 else 'commit'}")
            await sync_to_async(connections.close_all)()

    loop = asyncio.get_running_loop()
    visits = [loop.create_task(visit(number), context=contextvars.Context()) for number in range(12)]
    await asyncio.gather(*visits)

    assert await rows() == (6, 6)


async def test_without_a_transaction_nothing_is_sent(bound):
    with pytest.raises(TransactionRequired, match="aatomic"):
        await bound.enqueue(plain, 1)
    with pytest.raises(TransactionRequired):
        await bound.enqueue_unique_many(plain, [(1,), (2,)])

    assert await rows() == (0, 0)


async def test_with_autocommit_off_the_caller_commits(bound):
    await sync_to_async(transaction.set_autocommit)(False)
    await bound.enqueue_unique(plain, 1)
    await sync_to_async(transaction.rollback)()
    undone = await rows()
    await bound.enqueue_unique(plain, 2)
    await bound.enqueue_many(plain, [(3,), (4,)])
    await sync_to_async(transaction.commit)()
    await sync_to_async(transaction.set_autocommit)(True)

    assert undone == (0, 0)
    assert await rows() == (3, 1)


async def test_a_connection_to_another_database_is_refused(databases: Databases, engine: str, bound):
    with databases.migrated(engine) as elsewhere:
        await sync_to_async(lead_django_to)(elsewhere)
        with pytest.raises(WrongDatabase):
            async with aatomic():
                await bound.enqueue(plain, 1)

        assert await rows() == (0, 0)
        await sync_to_async(connections.close_all)()


async def test_a_connection_object_of_django_is_refused_with_what_to_bind_instead(ox: Oxpull):
    for theirs in (connection, connections["default"]):
        with pytest.raises(TypeError, match=r"bind oxpull_async\.integrations\.django\.DjangoConnection"):
            ox.bind(theirs)


async def test_an_unknown_alias_is_refused_by_name(ox: Oxpull):
    with pytest.raises(InvalidSettings, match="nowhere"):
        await ox.bind(DjangoConnection("nowhere")).enqueue(plain, 1)


async def test_a_closed_oxpull_is_not_open_in_a_block_either(migrated_url: str):
    bound = Oxpull(migrated_url).bind(DjangoConnection())
    async with aatomic():
        with pytest.raises(NotOpen):
            await bound.enqueue(plain, 1)


async def test_an_error_leaves_the_block_usable(bound):
    too_late = plain.using(priority=1)
    async with aatomic():
        await bound.enqueue(plain, 1)
        await sync_to_async(_break_the_task_table)("django_ox_oxtask", "hidden")
        with pytest.raises((StoreError, WrongDatabase)):
            await bound.enqueue_unique(too_late, 2)
        await sync_to_async(_break_the_task_table)("hidden", "django_ox_oxtask")
        await bound.enqueue_unique(too_late, 3)

    assert await rows() == (2, 1)


test_an_error_leaves_the_block_usable = pytest.mark.engines("sqlite", "postgres")(
    test_an_error_leaves_the_block_usable  # elsewhere DDL ends the transaction
)


def _break_the_task_table(name: str, new_name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO {new_name}")


async def test_a_block_that_is_broken_already_says_that_it_is_lost(bound):
    with pytest.raises(Undone):
        async with aatomic():
            await sync_to_async(transaction.set_rollback)(True)
            with pytest.raises(TransactionRolledBack):
                await bound.enqueue(plain, 1)
            raise Undone

    assert await rows() == (0, 0)


async def test_calls_at_once_in_one_block_do_not_mix(bound):
    async with aatomic():
        groups = await asyncio.gather(
            *[bound.enqueue_unique_many(plain, [(n,), (n + 1,), (n + 1,)]) for n in range(6)],
            *[bound.enqueue_many(plain, [(n,)] * 5) for n in range(3)],
        )
        single = await asyncio.gather(*[bound.enqueue_unique(plain, n) for n in range(7)])

    keyed = {result.id for group in groups[:6] for result in group}
    assert {result.id for result in single} == keyed
    assert len(keyed) == 7
    assert await rows() == (7 + 15, 7)


async def test_a_bulk_call_that_fails_takes_only_its_own_rows_with_it(bound, monkeypatch):
    async with aatomic():
        failing = bound.enqueue_unique_many(plain, [(n,) for n in range(3)])
        with pytest.raises(Undone):
            await _interrupted(failing, monkeypatch, beside=lambda: bound.enqueue_unique(plain, 100))
        assert await OxTask.objects.acount() == 1

    assert await rows() == (1, 1)


async def _interrupted(call, monkeypatch, beside):
    """Run a bulk call whose decision ends in an error, and another call while its savepoint is open."""
    from oxpull_async.enqueueing.joined import Joining

    decide, tasks = Joining.decide, []

    async def decided(self: Joining):
        monkeypatch.setattr(Joining, "decide", decide)
        answer = await decide(self)
        tasks.append(asyncio.ensure_future(beside()))
        await asyncio.sleep(0.05)  # so that it meets the open savepoint
        assert not tasks[0].done()
        del answer
        raise Undone

    monkeypatch.setattr(Joining, "decide", decided)
    try:
        await call
    finally:
        await tasks[0]
