"""Every state of a key and its holder, before and after a caller's transaction first read something, at every level."""

from __future__ import annotations

from uuid import UUID

import pytest

from oxpull_async import Oxpull, UniqueEnqueueRace
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import key_of
from tests.joined.deeds import AFTER, BEFORE, STORIES
from tests.joined.handles import READ_COMMITTED, Caller

# At PostgreSQL's snapshot levels a row that others have changed can't be locked, so a free key can't be taken there.
RACES_AT_A_SNAPSHOT = {
    ("free", "created-and-settled"), ("ready", "succeeded"), ("ready", "lost"), ("ready", "deleted"),
    ("running", "succeeded"), ("failed", "deleted"),
}  # fmt: skip


# U1-U6, U14, U15, U18, U27-U30, U33-U35, F2, F3, F17, F22, F30, F31
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("before", "after"), STORIES, ids=["-then-".join(story) for story in STORIES])
async def test_the_pending_holder_is_found_or_a_new_task_made_or_the_race_told(
    ox: Oxpull, send: AnyTask, caller: Caller, level: str, competitor: Competitor, dialect: str, before: str, after: str
):
    holder = BEFORE[before](competitor)
    await caller.begin(level)
    await caller.look()
    AFTER[after](competitor, holder or UUID(int=0))
    rows_before = competitor.counts()
    expected = committed_holder(competitor)
    await caller.order(1) if dialect != "sqlite" else None

    if races(dialect, level, before, after):
        with pytest.raises(UniqueEnqueueRace) as caught:
            await ox.bind(caller.bindable).enqueue_unique(send, 1)
        assert caught.value.retry == "transaction"
        assert caught.value.__cause__ is not None
        assert competitor.counts() == rows_before
        if dialect == "sqlite":
            await caller.rollback()
            return
    else:
        result = await ox.bind(caller.bindable).enqueue_unique(send, 1)
        assert result.created == (expected is None)
        if expected is not None:
            assert (result.id, result.status) == expected

    await caller.order(2)
    await caller.commit()
    assert {1, 2} >= {n for (n,) in competitor.rows("SELECT n FROM orders")} >= {2}
    if not races(dialect, level, before, after):
        assert competitor.locks() == {key_of(1): result.id}
        assert competitor.statuses()[result.id] == result.status


def races(dialect: str, level: str, before: str, after: str) -> bool:
    if dialect == "sqlite":
        return after != "nothing"
    return dialect == "postgres" and level != READ_COMMITTED and (before, after) in RACES_AT_A_SNAPSHOT


def committed_holder(competitor: Competitor) -> tuple[UUID, str] | None:
    """The pending task that the key's lock names, as it is committed now."""
    statuses = competitor.statuses()
    task_id = competitor.locks().get(key_of(1))
    if task_id is None or statuses.get(task_id) not in ("READY", "RUNNING"):
        return None
    return task_id, statuses[task_id]
