"""The meters of rate limits, rows that are put off, and paused queues."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from oxpull_async import RateLimit
from oxpull_async._contention import retrying
from oxpull_async.core.allotments import Group
from oxpull_async.drivers import SqlStore
from oxpull_async.ports_limits import Reserved
from tests.conformance.rows import PATH, WORKER, claimed, ids, inserted, new_task, now, request
from tests.integration.competitor import Competitor

OTHER = "proof.tasks.other"
LIMIT = RateLimit(3, 60, tasks=[PATH], name="stripe")
SMOOTH = RateLimit(10, 1, tasks=[PATH], name="smooth", smooth=True, burst=2)
GROUP = Group(frozenset({"stripe"}), (PATH,), None)
SMOOTH_GROUP = Group(frozenset({"smooth"}), (PATH,), None)


def window(competitor: Competitor, name: str = "stripe") -> tuple[int, int]:
    """Id and count of a window."""
    ((window_id, used),) = competitor.rows(
        "SELECT window_id, used FROM oxpull_oxpullratewindow WHERE limit_name = ?", name
    )
    return window_id, used


def begin_long_ago(competitor: Competitor) -> None:
    competitor.run("UPDATE oxpull_oxpullratewindow SET window_started_at = ?", datetime(2001, 1, 1, tzinfo=UTC))


async def test_starts_are_counted_up_to_the_limit(store: SqlStore, competitor: Competitor):
    first = await store.reserve([LIMIT], {GROUP: 2})
    second = await store.reserve([LIMIT], {GROUP: 2})
    third = await store.reserve([LIMIT], {GROUP: 2})

    assert [each.given[GROUP] for each in (first, second, third)] == [2, 1, 0]
    assert window(competitor) == (0, 3)
    assert first.closed == {}
    assert 0 < second.closed["stripe"] <= 60
    assert third.window_ids == {"stripe": 0}


async def test_a_window_that_is_over_begins_anew(store: SqlStore, competitor: Competitor):
    before = now()
    await store.reserve([LIMIT], {GROUP: 3})
    begin_long_ago(competitor)

    assert (await store.reserve([LIMIT], {GROUP: 1})).given == {GROUP: 1}

    assert window(competitor) == (1, 1)
    ((started,),) = competitor.rows("SELECT window_started_at FROM oxpull_oxpullratewindow")
    started = datetime.fromisoformat(started) if isinstance(started, str) else started
    started = started if started.tzinfo else started.replace(tzinfo=UTC)
    assert abs(started - before) < timedelta(seconds=30)


async def test_unused_starts_go_back_into_their_own_window(store: SqlStore, competitor: Competitor):
    reserved = await store.reserve([LIMIT], {GROUP: 3})

    await store.give_back([LIMIT], {"stripe": 2}, reserved)
    assert window(competitor) == (0, 1)

    begin_long_ago(competitor)
    await store.reserve([LIMIT], {GROUP: 1})
    await store.give_back([LIMIT], {"stripe": 1}, reserved)
    assert window(competitor) == (1, 1)


async def test_many_at_once_never_count_beyond_the_limit(store: SqlStore, competitor: Competitor):
    given = []

    async def reserve() -> None:
        reserved = await retrying(lambda: store.reserve([LIMIT], {GROUP: 1}))
        given.append(reserved.given[GROUP])

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(reserve)

    assert sum(given) == 3
    assert window(competitor) == (0, 3)


async def test_a_row_counts_under_each_limit_that_covers_it(store: SqlStore, competitor: Competitor):
    wider = RateLimit(10, 60, tasks=[PATH], name="wider")
    both = Group(frozenset({"stripe", "wider"}), (PATH,), None)

    reserved = await store.reserve([LIMIT, wider], {both: 5})

    assert reserved.given == {both: 3}
    assert (window(competitor), window(competitor, "wider")) == ((0, 3), (0, 3))


async def test_a_limit_of_nothing_gives_nothing_and_never_opens(store: SqlStore):
    closed = RateLimit(0, 60, tasks=[PATH], name="stripe")

    assert await store.reserve([closed], {GROUP: 1}) == Reserved({GROUP: 0}, {"stripe": 0}, {"stripe": math.inf})


async def test_a_bucket_is_emptied_and_fills(store: SqlStore, competitor: Competitor):
    first = await store.reserve([SMOOTH], {SMOOTH_GROUP: 5})

    assert first.given == {SMOOTH_GROUP: 2}
    assert 0 < first.closed["smooth"] <= 0.1
    competitor.run("UPDATE oxpull_async_rate_bucket SET as_of = ?", datetime(2001, 1, 1, tzinfo=UTC))
    second = await store.reserve([SMOOTH], {SMOOTH_GROUP: 1})
    assert (second.given, second.closed) == ({SMOOTH_GROUP: 1}, {})

    await store.give_back([SMOOTH], {"smooth": 7}, second)
    assert competitor.rows("SELECT tokens FROM oxpull_async_rate_bucket") == [(2.0,)]


async def test_each_key_has_a_bucket(store: SqlStore):
    keyed = RateLimit(2, 3600, tasks=[PATH], name="keyed", by="customer")

    first = await store.draw(keyed, {"keyed:a": 1, "keyed:b": 3, "keyed:A": 1})
    second = await store.draw(keyed, {"keyed:a": 5})

    assert {name: granted for name, (granted, _) in first.items()} == {"keyed:a": 1, "keyed:b": 2, "keyed:A": 1}
    assert second["keyed:a"][0] == 1
    assert 0 < second["keyed:a"][1] <= 1800
    assert await store.draw(keyed, {}) == {}


async def test_buckets_that_have_filled_are_pruned(store: SqlStore, competitor: Competitor):
    keyed = RateLimit(2, 3600, tasks=[PATH], name="keyed", by="customer")
    await store.draw(keyed, {"keyed:a": 1, "keyed:b": 1, "keyed:c": 1})
    competitor.run(
        "UPDATE oxpull_async_rate_bucket SET full_at = ? WHERE name <> 'keyed:c'", datetime(2001, 1, 1, tzinfo=UTC)
    )

    assert await store.prune_buckets(limit=1) == 1
    assert await store.prune_buckets(limit=10) == 1
    assert competitor.rows("SELECT name FROM oxpull_async_rate_bucket") == [("keyed:c",)]


async def test_the_first_due_rows_are_seen_without_being_claimed(store: SqlStore, competitor: Competitor):
    start = now() - timedelta(hours=1)
    await store.insert_tasks([
        new_task(priority=5, enqueued_at=start),
        new_task(enqueued_at=start + timedelta(seconds=1)),
        new_task(task_path=OTHER, enqueued_at=start + timedelta(seconds=2)),
        new_task(queue_name="mail"),
        new_task(run_after=now() + timedelta(hours=1)),
    ])  # fmt: skip
    one, two = GROUP, Group(frozenset(), (PATH, OTHER), None, ("mail",))

    heads = await store.peek({
        one: request(limit=1),
        two: request(limit=5, task_paths=[PATH, OTHER], passed_queues=["mail"]),
    })  # fmt: skip

    assert list(heads[one]) == [(5, start)]
    assert [head[0] for head in heads[two]] == [5, 0, 0]
    assert set(competitor.statuses().values()) == {"READY"}


async def test_a_claim_passes_over_the_queues_it_is_told(store: SqlStore):
    await inserted(store, queue_name="mail")
    (other,) = await inserted(store, queue_name="Mail")

    assert ids(await store.claim(request(passed_queues=["mail", "sms"]))) == [other.id]


# Paused queues


async def test_rows_of_a_paused_queue_stay_until_it_is_resumed(store: SqlStore):
    (mail,) = await inserted(store, queue_name="mail")
    (other,) = await inserted(store, queue_name="MAIL")

    assert await store.pause_queue("mail")
    assert ids(await store.claim(request())) == [other.id]
    assert await store.claim(request(queues=["mail"])) == []

    assert await store.resume_queue("mail")
    assert ids(await store.claim(request())) == [mail.id]


async def test_a_pause_is_told_with_its_time_and_happens_once(store: SqlStore):
    before = now()
    assert [await store.pause_queue("mäil"), await store.pause_queue("mäil")] == [True, False]
    await store.pause_queue("b")

    second, first = await store.paused_queues()

    assert (first.queue_name, second.queue_name) == ("mäil", "b")
    assert abs(first.paused_at - before) < timedelta(seconds=30)
    assert [await store.resume_queue("mäil"), await store.resume_queue("mäil")] == [True, False]
    assert len(await store.paused_queues()) == 1


@pytest.mark.engines("postgres", "sqlite")
async def test_what_runs_in_a_paused_queue_runs_on(store: SqlStore):
    (claim,) = await claimed(store, queue_name="mail")
    await store.pause_queue("mail")

    assert await store.renew([claim], worker_id=WORKER, lease_seconds=60) == [claim.id]


async def test_rows_that_are_due_and_stay_are_not_waited_for(store: SqlStore):
    await inserted(store, queue_name="mail", run_after=now() - timedelta(hours=1))
    await store.pause_queue("mail")
    asked = now()
    assert await store.next_due(task_paths=[PATH], queues=None, after=asked) is None

    later = asked + timedelta(hours=1)
    await inserted(store, run_after=later)
    assert await store.next_due(task_paths=[PATH], queues=None, after=asked) == later
