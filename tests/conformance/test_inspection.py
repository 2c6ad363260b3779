"""What the store tells of its rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async._figures import Counts, FinishedCount, PendingCount, UndecidedCount
from oxpull_async._ids import new_id
from oxpull_async.drivers import open_store
from oxpull_async.exceptions import WrongDatabase
from oxpull_async.ports import Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import pad
from tests.integration.competitor import Competitor

NOON = datetime(2026, 11, 30, 12, 0, 0, 123456, UTC)
MINUTE = timedelta(minutes=1)


async def count(store: Store, limit: int = 100) -> Counts:
    return await store.count(now=NOON, since=NOON - 5 * MINUTE, limit=limit)


async def test_an_empty_store_counts_nothing(store: Store):
    assert await count(store) == Counts([], [], [])


async def test_ready_rows_are_due_or_wait(store: Store, competitor: Competitor):
    mail: dict[str, Any] = {"queue_name": "mail", "task_path": "a.b"}
    competitor.insert_task(**mail, enqueued_at=NOON - 2 * MINUTE)
    competitor.insert_task(**mail, enqueued_at=NOON - 9 * MINUTE, run_after=NOON - 3 * MINUTE)
    competitor.insert_task(**mail, enqueued_at=NOON - 9 * MINUTE, run_after=NOON + MINUTE, last_attempted_at=NOON)
    competitor.insert_task(queue_name="mail", task_path="a.c", enqueued_at=NOON, run_after=NOON)

    found = sorted((await count(store)).pending, key=lambda found: found.task_path)

    assert found == [
        PendingCount("mail", "a.b", "READY", 3, 2, NOON - 3 * MINUTE, NOON),
        PendingCount("mail", "a.c", "READY", 1, 1, NOON, None),
    ]


async def test_running_rows_tell_of_the_last_claim(store: Store, competitor: Competitor):
    for minutes in (3, 1, 2):
        competitor.insert_task(
            status="RUNNING", queue_name="mail", task_path="a.b", last_attempted_at=NOON - minutes * MINUTE
        )

    assert (await count(store)).pending == [PendingCount("mail", "a.b", "RUNNING", 3, 0, None, NOON - MINUTE)]


async def test_rows_that_wait_for_a_decision_are_counted_up_to_the_limit(store: Store, competitor: Competitor):
    for status, number in [("WAITING", 1), ("FAILED", 4), ("LOST", 2)]:
        for _ in range(number):
            competitor.insert_task(status=status, queue_name="mail")

    found = sorted((await count(store, limit=3)).undecided, key=lambda found: found.status)

    assert found == [
        UndecidedCount("mail", "FAILED", 3),
        UndecidedCount("mail", "LOST", 2),
        UndecidedCount("mail", "WAITING", 1),
    ]


async def test_the_rows_that_finished_last_are_counted(store: Store, competitor: Competitor):
    for minutes in (1, 5, 6, 7):
        competitor.insert_task(
            status="SUCCESSFUL", queue_name="mail", finished_at=NOON - minutes * MINUTE,
            last_attempted_at=NOON - minutes * MINUTE,
        )  # fmt: skip
    competitor.insert_task(status="DISCARDED", queue_name="news", finished_at=NOON - 2 * MINUTE)

    found = sorted((await count(store, limit=4)).finished, key=lambda found: found.queue_name)

    assert found == [
        FinishedCount("mail", "SUCCESSFUL", 3, 2, NOON - 6 * MINUTE, NOON - MINUTE),
        FinishedCount("news", "DISCARDED", 1, 1, NOON - 2 * MINUTE, None),
    ]


async def test_locks_are_listed_page_by_page_with_the_status_of_their_holder(store: Store, competitor: Competitor):
    held = competitor.insert_unique(pad("b"), status="RUNNING")
    gone = new_id()
    competitor.insert_lock(pad("a"), gone)
    competitor.insert_lock(pad("c"), None)

    first = await store.list_locks(after="", limit=2)
    rest = await store.list_locks(after=first[-1].key, limit=2)

    assert [(lock.key, lock.task_id, lock.status) for lock in first] == [
        (pad("a"), gone, None),
        (pad("b"), held, "RUNNING"),
    ]
    assert [(lock.key, lock.task_id, lock.status) for lock in rest] == [(pad("c"), None, None)]
    assert rest[0].task_path == "elsewhere.task"
    assert abs(datetime.now(UTC) - rest[0].created_at) < timedelta(minutes=10)


async def test_a_probe_says_nothing_where_all_is_well(store: Store):
    await store.probe()


async def test_a_probe_tells_of_missing_tables(database_url: str):
    store = open_store(database_url, make_settings({"database": database_url}))
    await store.open()
    try:
        with pytest.raises(WrongDatabase, match="migrate"):
            await store.probe()
    finally:
        await store.close()
