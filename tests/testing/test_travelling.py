"""``freeze``, ``travel`` and ``run_until_idle``: what is due when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from oxpull_async import Oxpull, TaskContext, TaskStatus, Worker
from oxpull_async.testing import freeze, travel

NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


async def test_a_frozen_clock_stamps_what_is_written(ox: Oxpull):
    @ox.task
    async def send() -> None: ...

    with freeze(ox, NEW_YEAR) as clock:
        result = await send.enqueue()
        clock.move(60)
        await ox.run_until_idle()
        await result.refresh()

    assert result.enqueued_at == NEW_YEAR
    assert result.finished_at == NEW_YEAR + timedelta(minutes=1)


async def test_without_an_instant_it_stands_still_where_it_is(ox: Oxpull):
    with freeze(ox) as clock:
        assert clock.now() == ox.clock.now() == clock.now()
        clock.move(timedelta(days=-1))
        assert ox.clock.now() < datetime.now(UTC) - timedelta(hours=23)
    assert abs(ox.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


async def test_what_is_scheduled_runs_once_it_is_due(ox: Oxpull):
    @ox.task(run_after=timedelta(days=1))
    async def remind() -> None: ...

    result = await remind.enqueue()
    assert await ox.run_until_idle() == 0
    with travel(ox, timedelta(hours=23)) as clock:
        assert await ox.run_until_idle() == 0
        clock.move(timedelta(hours=1))
        assert await ox.run_until_idle() == 1
    assert (await result.refresh()).status is TaskStatus.SUCCESSFUL


async def test_schedules_are_fired_by_hand(ox: Oxpull):
    @ox.scheduled(cron="0 3 * * *")
    @ox.task
    async def clean() -> None: ...

    with freeze(ox, NEW_YEAR) as clock:
        assert await ox.schedules.dispatch() == 0  # it's noted
        clock.move(timedelta(days=1))
        assert await ox.run_until_idle(with_scheduled=True) == 0
        assert (await ox.schedules.dispatch(), await ox.schedules.dispatch()) == (1, 0)
        assert await ox.run_until_idle() == 1


async def test_a_worker_at_work_notices_that_time_was_moved(ox: Oxpull):
    @ox.task(run_after=timedelta(days=1))
    async def remind() -> str:
        return "ran"

    result = await remind.enqueue()
    async with ox.running(worker=Worker(ox, poll_interval=600)):
        with travel(ox, 0) as clock:
            clock.move(NEW_YEAR)
            assert await result.wait(timeout=20) == "ran"


async def test_journeys_nest(ox: Oxpull):
    with freeze(ox, NEW_YEAR):
        with travel(ox, timedelta(days=1)):
            assert ox.clock.now() != NEW_YEAR
        assert ox.clock.now() == NEW_YEAR


def test_an_instant_in_no_time_zone_is_refused():
    ox = Oxpull.in_memory()
    with pytest.raises(ValueError, match="time zone"), freeze(ox, datetime(2031, 1, 1)):
        pass


async def test_retries_and_later_rows_run_at_their_time(ox: Oxpull):
    ran: list[tuple[str, datetime]] = []

    @ox.task(max_attempts=3, backoff=3600, takes_context=True)
    async def flaky(context: TaskContext) -> None:
        ran.append((f"flaky {context.attempt}", ox.clock.now()))
        if context.attempt < 3:
            raise ConnectionError

    @ox.task(run_after=5400)
    async def later() -> None:
        ran.append(("later", ox.clock.now()))

    with freeze(ox, NEW_YEAR):
        await flaky.enqueue()
        await later.enqueue()
        assert await ox.run_until_idle(with_scheduled=True) == 4
        assert ox.clock.now() == NEW_YEAR

    assert [(name, (at - NEW_YEAR).total_seconds()) for name, at in ran] == [
        ("flaky 1", 0), ("flaky 2", 3600), ("later", 5400), ("flaky 3", 7200),
    ]  # fmt: skip


async def test_only_what_is_due_within_the_given_time_runs(ox: Oxpull):
    @ox.task(takes_context=True)
    async def every_hour(context: TaskContext) -> None:
        await context.enqueue(every_hour.using(run_after=3600))

    await every_hour.enqueue()

    assert await ox.run_until_idle(with_scheduled=timedelta(hours=3, minutes=30)) == 4


async def test_the_first_error_of_what_is_scheduled_can_be_raised(ox: Oxpull):
    @ox.task(run_after=60)
    async def fail() -> None:
        raise LookupError("gone")

    await fail.enqueue()

    with pytest.raises(LookupError):
        await ox.run_until_idle(with_scheduled=True, raise_errors=True)
    assert abs(ox.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


async def test_rows_of_queues_that_it_does_not_serve_end_nothing(migrated_url: str):
    async with Oxpull(migrated_url) as other, Oxpull(migrated_url, queues=["mine"]) as ours:

        @other.task(queue_name="theirs", run_after=60)
        async def theirs() -> None: ...

        ours.task(theirs.function)  # type: ignore[arg-type]
        await theirs.enqueue()

        assert await ours.run_until_idle(with_scheduled=True) == 0
