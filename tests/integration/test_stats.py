"""``ox.stats``: figures that monitors and operators live by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from oxpull_async import NotOpen, Oxpull, TaskStatus
from oxpull_async.runtime import stats as stats_module
from tests.integration.competitor import Competitor

MINUTE = timedelta(minutes=1)


def ago(minutes: float) -> datetime:
    return datetime.now(UTC) - minutes * MINUTE


async def test_without_rows_there_are_no_queues(ox: Oxpull):
    assert await ox.stats.queues() == []
    empty = await ox.stats.queue("mail")
    assert (empty.eligible, empty.oldest_age, empty.throughput, empty.failure_rate) == (0, None, 0.0, None)
    assert set(empty.counts.values()) == {0}


async def test_every_status_is_counted_queue_by_queue(ox: Oxpull, competitor: Competitor):
    for number, status in enumerate(TaskStatus, 1):
        for _ in range(number):
            finished_at = ago(60) if status in ("SUCCESSFUL", "FAILED", "LOST", "DISCARDED") else None
            competitor.insert_task(status=status, queue_name="mail", finished_at=finished_at)
    competitor.insert_task(queue_name="news")

    mail, news = await ox.stats.queues()

    assert (mail.queue_name, news.queue_name) == ("mail", "news")
    assert mail.counts == {status: number for number, status in enumerate(TaskStatus, 1)}
    assert mail.is_exact
    assert news.counts[TaskStatus.READY] == 1


async def test_queues_that_a_lax_collation_would_take_for_one_are_told_apart(ox: Oxpull, competitor: Competitor):
    names = ["mail", "MAIL", "mail ", "m\N{LATIN SMALL LETTER A WITH DIAERESIS}il"]
    for name in names:
        for status in ("READY", "RUNNING", "FAILED", "SUCCESSFUL"):
            finished_at = ago(1) if status in ("SUCCESSFUL", "FAILED") else None
            competitor.insert_task(status=status, queue_name=name, finished_at=finished_at)

    found = {queue.queue_name: queue.counts for queue in await ox.stats.queues()}

    assert found.keys() == set(names)
    for counts in found.values():
        assert {status for status, count in counts.items() if count == 1} == {
            TaskStatus.READY, TaskStatus.RUNNING, TaskStatus.FAILED, TaskStatus.SUCCESSFUL,
        }  # fmt: skip


async def test_throughput_and_failure_rate_are_of_the_last_five_minutes(ox: Oxpull, competitor: Competitor):
    for status, minutes in [("SUCCESSFUL", 1), ("SUCCESSFUL", 4), ("FAILED", 2), ("SUCCESSFUL", 6), ("FAILED", 9)]:
        competitor.insert_task(status=status, queue_name="mail", finished_at=ago(minutes))
    for status in ("LOST", "DISCARDED"):
        competitor.insert_task(status=status, queue_name="news", finished_at=ago(1))

    mail, news = await ox.stats.queues()

    assert mail.throughput == pytest.approx(0.6)
    assert mail.failure_rate == pytest.approx(1 / 3)
    assert (news.throughput, news.failure_rate) == (0.0, None)


async def test_a_busy_queue_s_throughput_is_that_of_its_latest_rows(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stats_module, "LIMIT", 6)
    for number in range(10):
        competitor.insert_task(status="SUCCESSFUL", finished_at=ago(0.1 * number))

    (stats,) = await ox.stats.queues()

    assert stats.throughput == pytest.approx(6 / 0.5, rel=0.2)  # six of them in half a minute
    assert not stats.is_exact


async def test_the_oldest_age_counts_from_when_a_row_was_due(ox: Oxpull, competitor: Competitor):
    competitor.insert_task(queue_name="mail", enqueued_at=ago(60), run_after=ago(2))
    competitor.insert_task(queue_name="mail", enqueued_at=ago(1))
    competitor.insert_task(queue_name="mail", enqueued_at=ago(90), run_after=ago(-30))

    stats = await ox.stats.queue("mail")

    assert stats.oldest_age == pytest.approx(120, abs=30)
    assert (stats.eligible, stats.scheduled, stats.counts[TaskStatus.READY]) == (2, 1, 3)


async def test_rows_that_nobody_here_can_run_are_told_by_their_task(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def known() -> None: ...

    await known.enqueue()
    competitor.insert_task(task_path="elsewhere.send")
    competitor.insert_task(task_path="elsewhere.send")
    competitor.insert_task(task_path="elsewhere.later", run_after=ago(-5))

    assert (await ox.stats.queue("default")).unrunnable == {"elsewhere.send": 2}


async def test_the_last_claim_is_told(ox: Oxpull):
    @ox.task
    async def task() -> None: ...

    before = ago(0.01)
    await task.enqueue()
    assert (await ox.stats.queue("default")).last_claim_at is None
    await ox.run_until_idle()

    last = (await ox.stats.queue("default")).last_claim_at
    assert last is not None
    assert before < last < ago(-1)


async def test_locks_are_told_apart_by_whether_they_are_held(ox: Oxpull, competitor: Competitor):
    for key, status in [("a" * 64, "READY"), ("b" * 64, "FAILED")]:
        competitor.insert_unique(key, status=status)
    competitor.insert_lock("c" * 64, None)

    locks = await ox.stats.locks()

    assert [(lock.key[0], lock.status, lock.is_held) for lock in locks] == [
        ("a", "READY", True),
        ("b", "FAILED", False),
        ("c", None, False),
    ]
    assert await ox.stats.locks(after="b" * 64) == locks[2:]
    assert await ox.stats.locks(limit=1) == locks[:1]


async def test_a_closed_oxpull_has_no_figures():
    with pytest.raises(NotOpen):
        await Oxpull.in_memory().stats.queues()
