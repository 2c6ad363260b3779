"""Every state of a key and its holder, before and after a caller's transaction first read something, at every level."""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

import pytest

from oxpull_async import EnqueueResult, Oxpull, TransactionRolledBack, UniqueEnqueueRace
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import key_of, own_rows
from tests.joined.deeds import AFTER, BEFORE, STORIES
from tests.joined.handles import READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, Caller

# At a snapshot level of PostgreSQL, and of a MariaDB that isolates snapshots, a row that others have changed can't be
# locked, so that a key that was freed since can't be taken there.
RACES_AT_A_SNAPSHOT = {
    ("free", "created-and-settled"), ("ready", "succeeded"), ("ready", "lost"), ("ready", "deleted"),
    ("running", "succeeded"), ("failed", "deleted"), ("failed", "lost"),
}  # fmt: skip
stories = pytest.mark.parametrize(("before", "after"), STORIES, ids=["-then-".join(story) for story in STORIES])


@pytest.mark.usefixtures("few")
@stories
async def test_the_pending_holder_is_found_or_a_new_task_made_or_the_race_told(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str,
    isolates_snapshots: bool, before: str, after: str,
):  # fmt: skip
    holder = BEFORE[before](competitor)
    await caller.begin(level)
    await caller.look()
    AFTER[after](competitor, holder or UUID(int=0))
    rows_before = competitor.counts()
    expected = committed_holder(competitor)
    if dialect != "sqlite":  # there the first write would be refused already
        await caller.order(1)

    enqueue = ox.bind(caller.bindable).enqueue_unique(send, 1)
    if is_punished(level, isolates_snapshots, after):
        await _rolled_back_or_as_expected(enqueue, caller, competitor, expected)
        return
    if is_race(dialect, level, isolates_snapshots, before, after):
        with pytest.raises(UniqueEnqueueRace) as caught:
            await enqueue
        assert caught.value.retry == "transaction"
        assert competitor.counts() == rows_before
        if dialect == "sqlite":
            await caller.rollback()
            return
    else:
        result = await enqueue
        assert result.created == (expected is None)
        assert expected in (None, (result.id, result.status))

    await caller.order(2)
    await caller.commit()
    assert own_rows(competitor) == {1, 2} - ({1} if dialect == "sqlite" else set())
    if not is_race(dialect, level, isolates_snapshots, before, after):
        assert competitor.locks() == {key_of(1): result.id}
        assert competitor.statuses()[result.id] == result.status


async def _rolled_back_or_as_expected(
    enqueue: Awaitable[EnqueueResult], caller: Caller, competitor: Competitor, expected: tuple[UUID, str] | None
) -> None:
    rows_before = competitor.counts()
    try:
        result = await enqueue
    except TransactionRolledBack:
        await caller.rollback()
        assert competitor.counts() == rows_before
        assert own_rows(competitor) == set()
    else:
        await caller.commit()
        assert expected in (None, (result.id, result.status))
        assert own_rows(competitor) == {1}


def is_punished(level: str, isolates_snapshots: bool, after: str) -> bool:
    """There any read locks, and to lock a row that others have changed costs the whole transaction."""
    return isolates_snapshots and level == SERIALIZABLE and after != "nothing"


def is_race(dialect: str, level: str, isolates_snapshots: bool, before: str, after: str) -> bool:
    story = (before, after)
    if dialect == "sqlite":
        return after != "nothing"
    if dialect == "mysql":
        races = RACES_AT_A_SNAPSHOT | {("failed", "lock-pruned")}
        return isolates_snapshots and level == REPEATABLE_READ and story in races
    return level != READ_COMMITTED and story in RACES_AT_A_SNAPSHOT


# What a connection has written in earlier transactions is nobody's own any more
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("deed", ["deleted", "succeeded", "claimed", "taken-over"])
async def test_a_task_of_an_earlier_transaction_of_this_connection_is_a_holder_like_any_other(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str,
    isolates_snapshots: bool, deed: str,
):  # fmt: skip
    await caller.begin(level)
    earlier = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.commit()

    await caller.begin(level)
    await caller.look()
    AFTER[deed](competitor, earlier.id)
    expected = committed_holder(competitor)
    enqueue = ox.bind(caller.bindable).enqueue_unique(send, 1)
    if is_punished(level, isolates_snapshots, deed) or dialect == "sqlite":
        with pytest.raises((TransactionRolledBack, UniqueEnqueueRace)):
            await enqueue
    elif is_race(dialect, level, isolates_snapshots, "ready", deed):
        with pytest.raises(UniqueEnqueueRace):
            await enqueue
    else:
        result = await enqueue
        assert (result.id, result.status) == expected if expected else result.created
    await caller.rollback()


def committed_holder(competitor: Competitor) -> tuple[UUID, str] | None:
    """The pending task that the key's lock names, as it is committed now."""
    statuses = competitor.statuses()
    task_id = competitor.locks().get(key_of(1))
    if task_id is None or statuses.get(task_id) not in ("READY", "RUNNING"):
        return None
    return task_id, statuses[task_id]
