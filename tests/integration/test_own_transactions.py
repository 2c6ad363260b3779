"""``ox.transaction()``: where it begins and ends for those who call within it."""

from __future__ import annotations

import asyncio

import pytest

from oxpull_async import ConnectionLost, Oxpull, TaskResultDoesNotExist, TransactionRequired, TransactionRolledBack
from tests.integration.competitor import Competitor

PATH = "proof.tasks.send"


class Stopped(Exception):
    """Ends a block."""


async def test_one_that_has_ended_takes_no_calls_even_if_its_connection_is_in_another(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, pool_size=1) as ox:
        send = ox.reference(PATH)
        async with ox.transaction() as ended:
            first = await ended.enqueue(send, 1)

        with pytest.raises(TransactionRequired, match="has ended"):
            await ended.enqueue(send, 2)
        async with ox.transaction() as other:
            second = await other.enqueue(send, 3)
            for call in (ended.enqueue(send, 4), ended.enqueue_many(send, [(5,)]), ended.enqueue_unique(send, 6)):
                with pytest.raises(TransactionRequired, match="has ended"):
                    await call

    assert set(competitor.statuses()) == {first.id, second.id}


async def test_a_call_that_is_under_way_as_its_block_ends_is_committed_with_it(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, pool_size=1) as ox:
        send = ox.reference(PATH)
        async with ox.transaction() as transaction:
            under_way = asyncio.ensure_future(transaction.enqueue_unique_many(send, [(1,), (2,)]))
            waits_for_it = asyncio.ensure_future(transaction.enqueue(send, 3))
            await asyncio.sleep(0)

        results = await under_way
        with pytest.raises(TransactionRequired, match="has ended"):
            await waits_for_it

    assert set(competitor.statuses()) == {result.id for result in results}


async def test_a_call_that_is_under_way_as_its_block_fails_leaves_nothing_and_a_good_connection(
    migrated_url: str, competitor: Competitor
):
    async with Oxpull(migrated_url, pool_size=1) as ox:
        send = ox.reference(PATH)
        with pytest.raises(Stopped):
            async with ox.transaction() as transaction:
                under_way = asyncio.ensure_future(transaction.enqueue_unique_many(send, [(1,), (2,)]))
                await asyncio.sleep(0)
                raise Stopped
        await asyncio.wait([under_way])
        under_way.exception()

        assert competitor.counts() == (0, 0)
        assert (await ox.enqueue_unique(send, 1)).created
        async with ox.transaction() as transaction:
            assert not (await transaction.enqueue_unique(send, 1)).created


@pytest.mark.engines("postgres", "mysql")
async def test_one_whose_connection_is_lost_says_so_to_calls_and_at_its_end(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url) as ox:
        send = ox.reference(PATH)
        with pytest.raises(ConnectionLost):
            async with ox.transaction() as transaction:
                await transaction.enqueue(send, 1)
                for session in competitor.sessions():
                    competitor.kill(session)
                with pytest.raises(ConnectionLost):
                    await transaction.enqueue(send, 2)
                with pytest.raises(ConnectionLost):
                    await transaction.enqueue(send, 3)

        assert competitor.counts() == (0, 0)
        assert (await ox.enqueue(send, 1)).created


async def test_one_that_the_server_has_undone_does_not_end_as_if_it_were_committed(monkeypatch: pytest.MonkeyPatch):
    async def undone(tasks: object) -> None:
        raise TransactionRolledBack("a deadlock has undone it")

    async with Oxpull.in_memory() as ox:
        send = ox.reference(PATH)
        with pytest.raises(TransactionRolledBack, match="a deadlock") as caught:
            async with ox.transaction() as transaction:
                first = await transaction.enqueue(send, 1)
                with monkeypatch.context() as patched:
                    patched.setattr(transaction._join(), "insert_tasks", undone)
                    with pytest.raises(TransactionRolledBack):
                        await transaction.enqueue(send, 2)
                with pytest.raises(TransactionRolledBack):
                    await transaction.enqueue(send, 3)

        assert isinstance(caught.value.__cause__, TransactionRolledBack)
        with pytest.raises(TaskResultDoesNotExist):
            await first.refresh()
        assert (await ox.enqueue(send, 1)).created
