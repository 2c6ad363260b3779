"""The log of ticks, and the schedules that are stored as rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from oxpull_async._contention import retrying
from oxpull_async.core.stored_schedules import ScheduleRow, UnreadableRow
from oxpull_async.drivers import SqlStore
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports_schedules import Anchored, Fired, NewTick, TickRefused, TickTaken
from tests.conformance.rows import inserted, new_task, new_unique, row
from tests.integration.competitor import Competitor
from tests.integration.stored_schedules import insert_schedule, ticks_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def new_tick(key: str = "nightly", at: datetime = NOON, **changes: Any) -> NewTick:
    tick = NewTick(key=key, scheduled_for=at, created_at=at, task=new_task(), unique_key=None, anchors=False)
    return replace(tick, **changes)


async def test_a_tick_is_logged_with_the_row_that_it_enqueues(store: SqlStore, competitor: Competitor):
    tick = new_tick(at=NOON + timedelta(microseconds=120))

    assert await store.fire(tick) == Fired(tick.task)

    assert (await row(store, tick.task.id)).status == "READY"
    assert ticks_of(competitor) == [("nightly", tick.scheduled_for, tick.task.id)]


async def test_a_tick_fires_once(store: SqlStore, competitor: Competitor):
    await store.fire(new_tick())

    assert await store.fire(new_tick()) == TickTaken()

    assert competitor.counts()[0] == 1
    assert isinstance(await store.fire(new_tick(key="hourly")), Fired)
    assert isinstance(await store.fire(new_tick(at=NOON + HOUR)), Fired)


async def test_of_many_that_fire_a_tick_at_once_one_does(store: SqlStore, competitor: Competitor):
    outcomes = []

    async def fire() -> None:
        outcomes.append(await store.fire(new_tick()))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(fire)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fired"] + ["TickTaken"] * 7
    assert competitor.counts()[0] == 1


async def test_a_schedule_that_is_new_is_anchored(store: SqlStore, competitor: Competitor):
    assert await store.fire(new_tick(anchors=True)) == Anchored()

    assert ticks_of(competitor) == [("nightly", NOON, None)]
    assert competitor.counts() == (0, 0)
    assert isinstance(await store.fire(new_tick(at=NOON + HOUR, anchors=True)), Fired)


async def test_a_tick_from_before_the_anchor_never_fires(store: SqlStore, competitor: Competitor):
    await store.fire(new_tick(anchors=True))

    assert await store.fire(new_tick(at=NOON - HOUR, anchors=True)) == TickTaken()

    assert ticks_of(competitor) == [("nightly", NOON, None)]


async def test_of_many_that_see_a_schedule_first_one_anchors_it(store: SqlStore, competitor: Competitor):
    outcomes = []

    async def fire(minutes: int) -> None:
        tick = new_tick(at=NOON + timedelta(minutes=minutes), anchors=True)
        outcomes.append(await retrying(lambda: store.fire(tick)))  # some servers call it a deadlock

    async with anyio.create_task_group() as group:
        for minutes in range(6):
            group.start_soon(fire, minutes)

    assert sum(isinstance(outcome, Anchored) for outcome in outcomes) == 1
    empty = [at for _, at, task_id in ticks_of(competitor) if task_id is None]
    assert len(empty) == 1
    assert all(at >= empty[0] for _, at, _ in ticks_of(competitor))


async def test_a_unique_task_that_is_pending_stands_for_the_tick(store: SqlStore, competitor: Competitor):
    first, second = new_unique("k"), new_unique("k")
    await store.fire(new_tick(task=first.task, unique_key=first.key))

    outcome = await store.fire(new_tick(at=NOON + HOUR, task=second.task, unique_key=second.key))

    assert isinstance(outcome, Fired)
    assert outcome.holder is not None
    assert outcome.holder.id == first.task.id
    assert [task_id for _, _, task_id in ticks_of(competitor)] == [first.task.id, first.task.id]
    assert competitor.counts() == (1, 1)


async def test_a_failure_leaves_neither_tick_nor_task(store: SqlStore, competitor: Competitor):
    (task,) = await inserted(store)

    with pytest.raises(UniqueViolation):
        await store.fire(new_tick(task=task))

    assert ticks_of(competitor) == []


async def test_the_newest_ticks_are_told_of_schedules_that_have_one(store: SqlStore):
    for hours in range(3):
        await store.fire(new_tick(at=NOON + hours * HOUR))
    await store.fire(new_tick(key="old"))

    newest = await store.newest_ticks(["nightly", "old", "never"], since=NOON + HOUR)

    assert newest == {"nightly": NOON + 2 * HOUR}
    assert await store.newest_ticks([], since=NOON) == {}


async def test_a_pruned_task_leaves_its_tick(store: SqlStore, competitor: Competitor):
    tick = new_tick()
    await store.fire(tick)
    await store.discard([tick.task.id], now=NOON)

    pruned = await store.prune(statuses=[], finished_before=NOON, limit=10)
    assert pruned.tasks == 0
    assert len(ticks_of(competitor)) == 1


async def test_stored_schedules_are_read(store: SqlStore, competitor: Competitor):
    insert_schedule(competitor, name="nächtlich", cron="0 2 * * *", arguments='{"a": [1, null]}', end_time=NOON)
    insert_schedule(competitor, name="often", trigger="interval", every_seconds=900, phase_seconds=60, enabled=False)

    nightly, often = await store.stored_schedules()

    assert isinstance(nightly, ScheduleRow)
    assert (nightly.name, nightly.cron, nightly.every_seconds, nightly.end_time) == (
        "nächtlich",
        "0 2 * * *",
        None,
        NOON,
    )
    assert nightly.digest == "551a193bc8646cba8d17e153f0fd89de"
    assert isinstance(often, ScheduleRow)
    assert (often.enabled, often.every_seconds, often.phase_seconds) == (False, 900, 60)


@pytest.mark.engines("sqlite")
async def test_a_row_that_cant_be_read_spares_the_others(store: SqlStore, competitor: Competitor):
    insert_schedule(competitor, name="bad")
    insert_schedule(competitor, name="good")
    competitor.run("UPDATE django_ox_oxschedule SET start_time = 'whenever' WHERE name = 'bad'")

    bad, good = await store.stored_schedules()

    assert isinstance(bad, UnreadableRow)
    assert "whenever" in bad.why
    assert isinstance(good, ScheduleRow)


@pytest.mark.engines("postgres")
async def test_an_instant_beyond_the_calendar_spares_the_other_rows(store: SqlStore, competitor: Competitor):
    insert_schedule(competitor, name="bad")
    insert_schedule(competitor, name="good")
    competitor.run("UPDATE django_ox_oxschedule SET start_time = 'infinity' WHERE name = 'bad'")

    bad, good = await store.stored_schedules()

    assert isinstance(bad, UnreadableRow)
    assert isinstance(good, ScheduleRow)


async def test_a_stored_schedule_fires_as_its_row_is_now(store: SqlStore, competitor: Competitor):
    schedule_id = insert_schedule(competitor, name="nightly")
    seen: list[ScheduleRow | None] = []

    def admit(current: ScheduleRow | None) -> NewTick | None:
        seen.append(current)
        return new_tick(key=f"db:{schedule_id}") if current is not None else None

    assert isinstance(await store.fire_stored(schedule_id, admit), Fired)
    assert await store.fire_stored(schedule_id, admit) == TickTaken()
    assert await store.fire_stored(schedule_id + 1, admit) == TickRefused()

    assert [current and current.name for current in seen] == ["nightly", "nightly", None]


async def test_a_boundary_moves_for_the_first_who_saw_it(store: SqlStore, competitor: Competitor):
    schedule_id = insert_schedule(competitor, boundary_for="of another timing")
    (before,) = await store.stored_schedules()
    assert isinstance(before, ScheduleRow)
    assert before.is_stale
    assert await store.schedules_changed_at() is None

    assert await store.move_boundary(schedule_id, before.boundary, now=NOON)
    assert not await store.move_boundary(schedule_id, before.boundary, now=NOON + HOUR)

    (after,) = await store.stored_schedules()
    assert isinstance(after, ScheduleRow)
    assert not after.is_stale
    assert (after.boundary.start_time, after.boundary.generation) == (NOON, before.boundary.generation + 1)
    assert await store.schedules_changed_at() == NOON
