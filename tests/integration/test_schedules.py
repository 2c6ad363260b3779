"""The scheduler over real databases, with a clock that the test moves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import InvalidArguments, InvalidSchedule, Oxpull, Schedule, TaskRouter, Unique
from oxpull_async.exceptions import ConnectionLost, StoreError
from oxpull_async.runtime.scheduler import Scheduler
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.shared_database import migrated_url, shared_databases
from tests.integration.stored_schedules import insert_schedule, ticks_of
from tests.log_lines import complaints

__all__ = ["migrated_url", "shared_databases"]

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Time:
    """What the schedulers of a test take for now."""

    def __init__(self) -> None:
        self.now = NOON + timedelta(seconds=30)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **length: float) -> None:
        self.now += timedelta(**length)


async def work(number: int = 0) -> int:
    return number


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def competitor(migrated_url: str) -> Any:
    with Competitor(migrated_url) as competitor:
        yield competitor


@pytest.fixture
async def make(migrated_url: str, time: Time) -> AsyncIterator[Callable[..., Any]]:
    """Open Oxpulls, each with its scheduler, as if in processes of their own."""
    opened: list[Oxpull] = []

    async def make(declare: Callable[[Oxpull], object], **settings: Any) -> Scheduler:
        ox = await Oxpull(migrated_url, **settings).open()
        opened.append(ox)
        declare(ox)
        return Scheduler(ox.schedules, clock=time)

    yield make
    for ox in opened:
        await ox.close()


def quarterly(ox: Oxpull) -> None:
    ox.schedule(ox.task(work), cron="*/15 * * * *", name="quarterly", args=(7,))


def times_of(competitor: Competitor, key: str | None = None) -> list[str]:
    return [f"{at:%H:%M}{'' if task_id else ' without a task'}" for _, at, task_id in ticks_of(competitor, key)]


async def test_a_new_schedule_is_anchored_and_fires_from_its_next_tick_on(make, time, competitor):
    scheduler = await make(quarterly)

    fired = [await scheduler.dispatch()]
    for _ in range(2):
        time.forward(minutes=17)
        fired.append(await scheduler.dispatch())

    assert fired == [0, 1, 1]
    assert times_of(competitor) == ["12:00 without a task", "12:15", "12:30"]
    (row,) = competitor.rows("SELECT DISTINCT task_path, args, status FROM django_ox_oxtask")
    assert (row[0], row[2]) == (f"{__name__}.work", "READY")
    assert "7" in str(row[1])


async def test_of_the_ticks_that_were_missed_the_latest_fires_once(make, time, competitor):
    scheduler = await make(quarterly)
    await scheduler.dispatch()
    time.forward(hours=6)

    assert [await scheduler.dispatch() for _ in range(3)] == [1, 0, 0]

    assert times_of(competitor) == ["12:00 without a task", "18:00"]


async def test_of_five_processes_one_fires_each_tick(make, time, competitor):
    schedulers = [await make(quarterly) for _ in range(5)]
    fired = []
    for _ in range(3):
        fired.append([await scheduler.dispatch() for scheduler in schedulers])
        time.forward(minutes=15)

    assert [sum(found) for found in fired] == [0, 1, 1]
    assert competitor.counts()[0] == 2


async def test_a_restart_goes_on_where_the_log_ends(make, time, competitor):
    await (await make(quarterly)).dispatch()
    time.forward(minutes=15)

    assert await (await make(quarterly)).dispatch() == 1
    assert await (await make(quarterly)).dispatch() == 0


async def test_nothing_is_asked_of_the_database_while_nothing_new_is_due(make, time, monkeypatch):
    scheduler = await make(quarterly)
    await scheduler.dispatch()
    monkeypatch.setattr(type(scheduler._scheduling.store), "newest_ticks", None)

    time.forward(minutes=14)

    assert await scheduler.dispatch() == 0


async def test_a_tick_in_the_future_doesnt_keep_those_that_are_due(make, time, competitor):
    ahead = await make(quarterly)
    await ahead.dispatch()
    time.forward(days=1)
    await ahead.dispatch()
    time.forward(days=-1)
    time.forward(minutes=15)

    scheduler = await make(quarterly)

    assert [await scheduler.dispatch(), await scheduler.dispatch()] == [1, 0]
    assert times_of(competitor)[:2] == ["12:00 without a task", "12:15"]


async def test_the_pause_lasts_until_the_next_tick(make, time):
    scheduler = await make(lambda ox: ox.schedule(ox.task(work), every=20))

    assert await scheduler.turn() == pytest.approx(10, abs=0.1)


async def test_two_schedules_of_one_task_fire_both(make, time, competitor):
    def declare(ox: Oxpull) -> None:
        task = ox.task(work)
        ox.schedule(task, cron="* * * * *", name="one", args=(1,))
        ox.schedule(task, cron="* * * * *", name="two", kwargs={"number": 2})

    scheduler = await make(declare)
    await scheduler.dispatch()
    time.forward(minutes=1)

    assert await scheduler.dispatch() == 2


async def test_two_schedules_of_a_unique_task_with_equal_arguments_make_one_row(make, time, competitor):
    def declare(ox: Oxpull) -> None:
        task = ox.task(unique=True)(work)
        ox.schedule(task, cron="* * * * *", name="one")
        ox.schedule(task, cron="* * * * *", name="two")

    scheduler = await make(declare)
    await scheduler.dispatch()
    time.forward(minutes=1)
    await scheduler.dispatch()
    time.forward(minutes=1)
    await scheduler.dispatch()

    assert competitor.counts() == (1, 1)
    assert len({task_id for _, _, task_id in ticks_of(competitor) if task_id}) == 1


async def test_a_schedule_of_a_unique_task_is_warned_of(caplog):
    ox = Oxpull("sqlite:///:memory:")

    with caplog.at_level(logging.WARNING, "oxpull_async"):
        ox.schedule(ox.task(unique=True)(work), every=60)

    assert complaints(caplog) == ["unique_task_scheduled"]


async def test_what_keeps_one_schedule_from_firing_keeps_no_other(make, time, competitor, monkeypatch, caplog):
    def declare(ox: Oxpull) -> None:
        task = ox.task(work)
        for name in ("one", "two", "three"):
            ox.schedule(task, cron="* * * * *", name=name)

    scheduler = await make(declare)
    await scheduler.dispatch()
    time.forward(minutes=1)
    store = scheduler._scheduling.store
    fire = store.fire

    async def refuse_two(tick: Any) -> Any:
        if tick.key == "two":
            raise StoreError("no")
        return await fire(tick)

    monkeypatch.setattr(store, "fire", refuse_two)
    assert [await scheduler.dispatch(), await scheduler.dispatch()] == [2, 0]
    assert complaints(caplog) == ["schedule_failed"]

    monkeypatch.undo()
    assert await scheduler.dispatch() == 1


async def test_a_lost_database_ends_the_pass_to_be_tried_again(make, time, monkeypatch):
    scheduler = await make(quarterly)

    async def lost(tick: Any) -> Any:
        raise ConnectionLost("gone")

    monkeypatch.setattr(scheduler._scheduling.store, "fire", lost)
    with pytest.raises(ConnectionLost):
        await scheduler.dispatch()

    monkeypatch.undo()
    await scheduler.dispatch()
    time.forward(minutes=15)
    assert await scheduler.dispatch() == 1


async def test_an_oxpull_that_runs_schedules_fires_and_tells_of_the_row(migrated_url, competitor):
    enqueued = []
    async with Oxpull(migrated_url) as ox:
        ox.schedule(ox.task(work), every=1)
        ox.on("enqueued", lambda result: enqueued.append(result.task_path))
        async with ox.running(schedules=True):
            await eventually(lambda: len(enqueued) > 0, within=20)

    assert enqueued[0] == f"{__name__}.work"


async def test_a_worker_fires_and_runs(migrated_url):
    from oxpull_async import Worker

    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    ox = Oxpull(migrated_url)
    ox.scheduled(every=1, args=(5,))(ox.task(note))
    async with ox.running(worker=Worker(ox)):
        await eventually(lambda: len(ran) > 0, within=20)

    assert ran[0] == 5


# Stored as rows


def schedulable(ox: Oxpull) -> None:
    ox.schedulable("work")(ox.task(work))


async def test_a_stored_schedule_fires_its_first_tick_without_an_anchor(make, time, competitor):
    schedule_id = insert_schedule(competitor, cron="5 12 * * *", start_time=NOON, arguments='{"number": 3}')
    time.forward(minutes=6)

    scheduler = await make(schedulable)

    assert [await scheduler.dispatch(), await scheduler.dispatch()] == [1, 0]
    assert times_of(competitor, f"db:{schedule_id}") == ["12:05"]


async def test_a_stored_schedule_goes_by_the_zone_that_is_set(make, time, competitor):
    insert_schedule(competitor, cron="5 8 * * *", start_time=NOON)
    time.forward(minutes=6)

    scheduler = await make(schedulable, schedule_timezone="America/New_York")

    assert await scheduler.dispatch() == 1
    assert times_of(competitor) == ["12:05"]


async def test_ticks_outside_a_stored_schedule_s_bounds_dont_fire(make, time, competitor):
    insert_schedule(competitor, name="not yet", cron="* * * * *", start_time=NOON + MINUTE)
    insert_schedule(competitor, name="no more", cron="* * * * *", end_time=NOON - MINUTE)
    insert_schedule(competitor, name="never", cron="* * * * *", enabled=False)

    assert await (await make(schedulable)).dispatch() == 0


async def test_a_tick_past_its_starting_deadline_is_dropped_and_told_once(make, time, competitor, caplog):
    insert_schedule(competitor, cron="0 12 * * *", start_time=NOON, starting_deadline_seconds=60)
    time.forward(minutes=2)
    scheduler = await make(schedulable)

    assert [await scheduler.dispatch(), await scheduler.dispatch()] == [0, 0]

    assert complaints(caplog) == ["schedule_tick_dropped"]
    assert ticks_of(competitor) == []


async def test_a_schedule_retimed_behind_everybody_s_back_fires_from_then_on(make, time, competitor):
    schedule_id = insert_schedule(competitor, cron="0 2 * * *", start_time=NOON)
    scheduler = await make(schedulable)
    await scheduler.dispatch()
    competitor.run("UPDATE django_ox_oxschedule SET cron = '0 13 * * *' WHERE id = ?", schedule_id)
    time.forward(hours=1, minutes=5)

    fired = [await scheduler.dispatch(), await scheduler.dispatch()]
    time.forward(days=1)
    fired.append(await scheduler.dispatch())

    assert fired == [0, 0, 1]
    assert [f"{at:%d %H:%M}" for _, at, _ in ticks_of(competitor)] == ["02 13:00"]


async def test_a_change_that_is_told_is_seen_in_the_next_pass(make, time, competitor):
    scheduler = await make(schedulable)
    await scheduler.dispatch()
    insert_schedule(competitor, cron="* * * * *", start_time=NOON)
    assert await scheduler.dispatch() == 0

    competitor.run("INSERT INTO django_ox_oxschedulechange (id, changed_at) VALUES (1, ?)", time.now)

    assert await scheduler.dispatch() == 1


async def test_a_change_that_nobody_tells_is_seen_within_a_minute(make, time, competitor):
    scheduler = await make(schedulable)
    await scheduler.dispatch()
    insert_schedule(competitor, cron="* * * * *", start_time=NOON)

    time.forward(seconds=61)

    assert await scheduler.dispatch() == 1


async def test_a_schedule_disabled_since_it_was_read_doesnt_fire(make, time, competitor):
    insert_schedule(competitor, cron="* * * * *", start_time=NOON + MINUTE)
    scheduler = await make(schedulable)
    await scheduler.dispatch()
    competitor.run("UPDATE django_ox_oxschedule SET enabled = ?", False)
    time.forward(seconds=40)

    assert await scheduler.dispatch() == 0
    assert ticks_of(competitor) == []


async def test_rows_that_cant_run_here_are_told_of_once_and_spare_the_others(make, time, competitor, caplog):
    insert_schedule(competitor, name="unknown", task_key="proof.tasks.other", cron="* * * * *")
    insert_schedule(competitor, name="bad cron", cron="61 * * * *")
    insert_schedule(competitor, name="no length", trigger="interval", every_seconds=0)
    insert_schedule(competitor, name="bad arguments", cron="* * * * *", arguments='{"size": 1}')
    insert_schedule(competitor, name="no object", cron="* * * * *", arguments="[1]")
    good = insert_schedule(competitor, name="good", cron="* * * * *")
    scheduler = await make(schedulable)

    assert [await scheduler.dispatch(), await scheduler.dispatch()] == [1, 0]

    assert [key for key, _, _ in ticks_of(competitor)] == [f"db:{good}"]
    assert complaints(caplog) == ["stored_schedule_skipped"] * 5


async def test_a_path_in_a_row_is_never_imported(make, time, competitor):
    insert_schedule(competitor, task_key=f"{__name__}.work", cron="* * * * *")

    assert await (await make(schedulable)).dispatch() == 0
    assert competitor.counts()[0] == 0


async def test_without_schedulable_tasks_no_row_is_read(make, time, competitor, monkeypatch):
    scheduler = await make(lambda ox: None)
    monkeypatch.setattr(type(scheduler._scheduling.store), "schedules_changed_at", None)

    assert await scheduler.dispatch() == 0


async def test_upcoming_tells_of_declared_and_stored_schedules(migrated_url, competitor):
    insert_schedule(competitor, name="stored", cron="0 2 * * *")
    async with Oxpull(migrated_url) as ox:
        schedulable(ox)
        ox.schedule(ox.tasks[f"{__name__}.work"], every=60, name="declared")

        declared, stored = await ox.schedules.upcoming()

    assert (declared.name, declared.stored, declared.last_tick) == ("declared", False, None)
    assert (stored.name, stored.stored, stored.task_path) == ("stored", True, f"{__name__}.work")
    assert stored.next_tick.strftime("%H:%M") == "02:00"


# Declarations


@pytest.fixture
def nowhere() -> Oxpull:
    return Oxpull("sqlite:///:memory:")


def test_a_schedule_knows_its_ticks(nowhere):
    schedule = nowhere.schedule(nowhere.task(work), cron="0 12 * * *", timezone="Europe/Berlin")

    assert isinstance(schedule, Schedule)
    assert schedule.name == f"{__name__}.work"
    assert schedule.next_tick(NOON) == datetime(2026, 6, 2, 10, tzinfo=UTC)
    assert schedule.latest_tick(NOON) == datetime(2026, 6, 1, 10, tzinfo=UTC)
    assert list(nowhere.schedules) == [schedule]
    assert nowhere.schedules[schedule.name] is schedule


def test_the_decorator_leaves_the_task_as_it_is(nowhere):
    task = nowhere.task(work)

    assert nowhere.scheduled(cron="@daily", name="daily")(task) is task
    assert nowhere.scheduled(every=60)(task) is task
    assert {schedule.name for schedule in nowhere.schedules} == {"daily", task.path}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": "0 25 * * *"}, "hour '25' is outside 0 to 23"),
        ({"cron": "0 0 30 2 *"}, "never come true"),
        ({"every": 60, "name": "db:7"}, "begins with 'db:'"),
        ({"every": 60, "name": ""}, "1 to 128 characters"),
        ({"every": 60, "name": "n" * 129}, "1 to 128 characters"),
        ({"every": 60, "name": "n\0"}, "NUL"),
        ({"every": 60, "timezone": "Europe/Atlantis"}, "no time zone"),
        ({}, "either cron= or every="),
    ],
)
def test_a_bad_declaration_is_told_at_once(nowhere, options, words):
    with pytest.raises(InvalidSchedule, match=words):
        nowhere.schedule(nowhere.task(work), **options)
    assert len(nowhere.schedules) == 0


def test_arguments_are_checked_at_the_declaration(nowhere):
    with pytest.raises(InvalidArguments, match="size"):
        nowhere.schedule(nowhere.task(work), every=60, kwargs={"size": 1})
    with pytest.raises(InvalidArguments):
        nowhere.schedule(nowhere.task(work), every=60, args=(float("nan"),))


def test_what_is_no_task_cant_be_scheduled(nowhere):
    with pytest.raises(InvalidSchedule, match=r"@ox\.task"):
        nowhere.scheduled(every=60)(work)


def test_a_task_that_no_schedule_can_enqueue_is_refused_at_once(nowhere):
    with pytest.raises(InvalidSchedule, match="hold= or window="):
        nowhere.schedule(nowhere.task(unique=Unique(hold="ready"))(work), every=60)


def test_names_that_differ_by_case_alone_are_refused(nowhere):
    nowhere.schedule(nowhere.task(work), every=60, name="Report")

    with pytest.raises(InvalidSchedule, match="taken by 'Report'"):
        nowhere.schedule(nowhere.task(work), every=60, name="report")


def test_a_router_s_schedules_are_those_of_the_oxpull_that_includes_it(nowhere):
    router = TaskRouter()
    task = router.task(work)
    router.schedule(task, every=60, name="before")
    nowhere.include(router)
    router.schedule(task, every=60, name="after")

    assert {schedule.name for schedule in nowhere.schedules} == {"before", "after"}
    nowhere.include(router)


def test_a_router_with_a_name_that_is_taken_is_refused(nowhere):
    router = TaskRouter()
    router.schedule(router.task(work), every=60, name="nightly")
    nowhere.schedule(nowhere.reference("proof.tasks.other"), every=60, name="nightly")

    with pytest.raises(InvalidSchedule, match="taken"):
        nowhere.include(router)


def test_a_key_for_stored_schedules_is_one_task_s(nowhere):
    nowhere.schedulable("work")(nowhere.task(work))
    nowhere.schedulable("work")(nowhere.tasks[f"{__name__}.work"])

    with pytest.raises(InvalidSchedule, match="taken by"):
        nowhere.schedulable("work")(nowhere.reference("proof.tasks.other"))
    with pytest.raises(InvalidSchedule, match="characters"):
        nowhere.schedulable("")


def test_a_zone_that_doesnt_exist_is_an_invalid_setting():
    from oxpull_async import InvalidSettings

    with pytest.raises(InvalidSettings, match="schedule_timezone"):
        Oxpull(schedule_timezone="Europe/Atlantis")
