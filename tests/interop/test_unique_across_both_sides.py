"""One key, one pending task, whichever side enqueues, settles, takes over, retries or prunes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_project import tasks
from peers import Peer

from oxpull_async import Oxpull, TransactionRolledBack
from oxpull_async.core.keys import unique_key
from oxpull_async.integrations.django import DjangoConnection, aatomic
from tests.integration.competitor import Competitor
from tests.scale import rounds

pytestmark = pytest.mark.timeout(120)
T = TypeVar("T")

PATH = "django_project.tasks.unique_plain"
SETTLED = ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED"]
ARGUMENTS: list[tuple[Any, ...]] = [
    (),
    (1,),
    ("ä", "😀", "\x7f"),
    ([1, {"b": None, "a": [True, 1.5]}],),
    (-0.0, 1e16, 10**40),
]


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


def key_of(*arguments: Any) -> str:
    return unique_key("default", PATH, "default", arguments, {})


async def test_theirs_finds_ours(ox: Oxpull, peer: Peer, watcher: Competitor):
    ours = [await ox.enqueue(tasks.unique_plain, *arguments) for arguments in ARGUMENTS]

    theirs = await peer.tell("enqueue", "unique_plain", ARGUMENTS)

    assert theirs == [str(result.id) for result in ours]
    assert watcher.counts() == (len(ARGUMENTS), len(ARGUMENTS))


async def test_ours_finds_theirs(ox: Oxpull, peer: Peer, watcher: Competitor):
    theirs = await peer.tell("enqueue", "unique_plain", ARGUMENTS)

    singly = [await ox.enqueue(tasks.unique_plain, *arguments) for arguments in ARGUMENTS]
    together = await ox.enqueue_many(tasks.unique_plain, ARGUMENTS)

    assert [str(result.id) for result in singly] == theirs
    assert [str(result.id) for result in together] == theirs
    assert not any(result.created for result in [*singly, *together])
    assert watcher.counts() == (len(ARGUMENTS), len(ARGUMENTS))


async def test_a_reference_by_path_finds_theirs_too(ox: Oxpull, peer: Peer):
    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])

    ours = await ox.reference(PATH, unique=True).enqueue(1)

    assert (str(ours.id), ours.created) == (theirs, False)


@pytest.mark.usefixtures("django_here")
async def test_ours_finds_theirs_inside_a_transaction_of_django(ox: Oxpull, peer: Peer, watcher: Competitor):
    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])
    bound = ox.bind(DjangoConnection())

    async with aatomic():
        ours = await bound.enqueue(tasks.unique_plain, 1)
        together = await bound.enqueue_many(tasks.unique_plain, [(1,), (2,), (2,)])

    assert [str(ours.id), str(together[0].id)] == [theirs, theirs]
    assert [result.created for result in together] == [False, True, False]
    assert watcher.counts() == (2, 2)


@pytest.mark.parametrize("commit", [True, False])
async def test_ours_waits_for_their_transaction(ox: Oxpull, peer: Peer, commit: bool):
    theirs = await peer.tell("enqueue_in_a_block", "unique_plain", [1], commit)

    ours = await ox.enqueue(tasks.unique_plain, 1)

    assert (str(ours.id) == theirs) == commit
    assert ours.created == (not commit)


async def test_a_race_of_both_sides_has_one_winner_for_each_key(ox: Oxpull, peers: list[Peer], watcher: Competitor):
    calls = [[n] for n in range(rounds(small=25, full=500))]

    async def ours() -> list[list[str]]:
        found = []
        for (n,) in calls:
            results = await asyncio.gather(*[ox.enqueue(tasks.unique_plain, n) for _ in range(3)])
            found.append([str(result.id) for result in results])
        return found

    theirs = [asyncio.ensure_future(peer.tell("enqueue", "unique_plain", calls)) for peer in peers]
    mine = await ours()
    others = [await found for found in theirs]

    assert watcher.counts() == (len(calls), len(calls))
    for index, ids in enumerate(mine):
        assert {*ids, *(found[index] for found in others)} == {ids[0]}


@pytest.mark.usefixtures("django_here")
async def test_a_race_of_transactions_of_both_sides_has_one_winner_for_each_key(
    ox: Oxpull, peers: list[Peer], watcher: Competitor, dialect: str
):
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    calls = [[n] for n in range(rounds(small=15, full=300))]
    bound = ox.bind(DjangoConnection())

    async def ours() -> list[str]:
        found = []
        for (n,) in calls:
            async with aatomic():
                found.append(str((await bound.enqueue(tasks.unique_plain, n)).id))
        return found

    mine, *others = await asyncio.gather(ours(), *[peer.tell("enqueue", "unique_plain", calls) for peer in peers])

    assert watcher.counts() == (len(calls), len(calls))
    assert all(found == mine for found in others)


@pytest.mark.parametrize("status", SETTLED)
async def test_ours_takes_over_what_theirs_settled_and_theirs_finds_it(
    ox: Oxpull, peer: Peer, watcher: Competitor, status: str
):
    (stale,) = await peer.tell("enqueue", "unique_plain", [[1]])
    await peer.tell("settle", stale, status)

    ours = await ox.enqueue(tasks.unique_plain, 1)
    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])

    assert ours.created
    assert theirs == str(ours.id) != stale
    assert watcher.counts() == (2, 1)
    assert watcher.locks() == {key_of(1): ours.id}


@pytest.mark.parametrize("status", SETTLED)
async def test_theirs_releases_what_ours_settled_and_ours_finds_it(
    ox: Oxpull, peer: Peer, watcher: Competitor, status: str
):
    stale = await ox.enqueue(tasks.unique_plain, 1)
    watcher.set_task(stale.id, status=status)

    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])
    ours = await ox.enqueue(tasks.unique_plain, 1)

    assert (str(ours.id), ours.created) == (theirs, False)
    assert ours.id != stale.id
    assert watcher.counts() == (2, 1)


async def test_a_race_for_stale_locks_has_one_winner_for_each_key(ox: Oxpull, peers: list[Peer], watcher: Competitor):
    calls = [[n] for n in range(rounds(small=25, full=500))]
    stale = await ox.enqueue_many(tasks.unique_plain, [(n,) for (n,) in calls])
    for result in stale:
        watcher.set_task(result.id, status="SUCCESSFUL")

    async def ours() -> list[str]:
        return [str((await ox.enqueue(tasks.unique_plain, n)).id) for (n,) in calls]

    mine, *others = await asyncio.gather(ours(), *[peer.tell("enqueue", "unique_plain", calls) for peer in peers])

    assert watcher.counts() == (2 * len(calls), len(calls))
    assert all(found == mine for found in others)
    assert not {str(result.id) for result in stale} & set(mine)


@pytest.mark.parametrize("by", ["ours", "theirs"])
async def test_a_retried_holder_has_its_key_again(ox: Oxpull, peer: Peer, watcher: Competitor, by: str):
    holder = await ox.enqueue(tasks.unique_plain, 1)
    watcher.set_task(holder.id, status="FAILED", attempts=3, finished_at=holder.enqueued_at)
    if by == "ours":
        assert await ox.actions.retry(holder.id)
    else:
        assert await peer.tell("retry", str(holder.id))

    (theirs,) = await peer.tell("enqueue", "unique_plain", [[1]])
    ours = await ox.enqueue(tasks.unique_plain, 1)

    assert {theirs, str(ours.id)} == {str(holder.id)}
    assert (ours.attempts, ours.max_attempts) == (3, 4)
    assert watcher.row(holder.id, "lease_epoch") == (1,)
    assert watcher.counts() == (1, 1)


@pytest.mark.parametrize("by", ["ours", "theirs"])
async def test_a_discarded_holder_frees_its_key(ox: Oxpull, peer: Peer, watcher: Competitor, by: str):
    holder = await ox.enqueue(tasks.unique_plain, 1)
    if by == "ours":
        assert await ox.actions.discard(holder.id)
        (new,) = await peer.tell("enqueue", "unique_plain", [[1]])
    else:
        assert await peer.tell("discard", str(holder.id))
        new = str((await ox.enqueue(tasks.unique_plain, 1)).id)

    assert new != str(holder.id)
    assert watcher.locks() == {key_of(1): UUID(new)}


async def test_their_prune_never_takes_a_lock_that_ours_has_just_taken_over(
    ox: Oxpull, peer: Peer, watcher: Competitor, dialect: str
):
    """The prune finds a lock stale, waits for the take-over's commit, and must then not delete what it finds."""

    async def take_over() -> list[UUID]:
        async with ox.transaction() as bound:
            results = await bound.enqueue_many(tasks.unique_plain, calls)
            await anyio.sleep(0.01)  # the prune finds the old locks meanwhile, and waits
        return [result.id for result in results]

    pruning = asyncio.ensure_future(peer.tell("prune_for", rounds(small=3, full=60)))
    number, held = 0, set()
    while not pruning.done():
        calls = [(number + n,) for n in range(4)]
        number += len(calls)
        for result in await ox.enqueue_many(tasks.unique_plain, calls):
            watcher.set_task(result.id, status="SUCCESSFUL")
        ids = await repeated(take_over, dialect)
        held |= set(ids)
        assert [result.id for result in await ox.enqueue_many(tasks.unique_plain, calls)] == ids

    assert await pruning > 0
    assert held <= set(watcher.locks().values())


@pytest.mark.usefixtures("django_here")
async def test_their_prune_spares_take_overs_in_transactions_of_django_too(
    ox: Oxpull, peer: Peer, watcher: Competitor, dialect: str
):
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")

    async def take_over() -> UUID:
        async with aatomic():
            result = await ox.bind(DjangoConnection()).enqueue(tasks.unique_plain, number)
            await anyio.sleep(0.01)
        return result.id

    pruning = asyncio.ensure_future(peer.tell("prune_for", rounds(small=2, full=30)))
    number, held = 0, set()
    while not pruning.done():
        number += 1
        stale = await ox.enqueue(tasks.unique_plain, number)
        watcher.set_task(stale.id, status="FAILED")
        held.add(await repeated(take_over, dialect))

    assert await pruning > 0
    assert held <= set(watcher.locks().values())


async def repeated(take_over: Callable[[], Awaitable[T]], dialect: str) -> T:
    """InnoDB: a prune holds the lock it wants to delete and asks for its holder's row, a take-over the reverse."""
    while True:
        try:
            return await take_over()
        except TransactionRolledBack:
            assert dialect == "mysql"


async def test_our_prune_spares_what_theirs_holds(ox: Oxpull, peer: Peer, watcher: Competitor):
    pending, settled = await peer.tell("enqueue", "unique_plain", [[1], [2]])
    await peer.tell("settle", settled)

    pruned = await ox.prune(older_than=3600)

    assert pruned.locks == 1
    assert watcher.locks() == {key_of(1): UUID(pending)}
    assert await peer.tell("enqueue", "unique_plain", [[1]]) == [pending]
