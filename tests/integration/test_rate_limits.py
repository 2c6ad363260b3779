"""Workers within rate limits, over real databases."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from oxpull_async import Oxpull, RateLimit, Worker
from oxpull_async.exceptions import StoreError
from oxpull_async.ports import ClaimRequest
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.shared_database import migrated_url, shared_databases
from tests.log_lines import complaints

__all__ = ["migrated_url", "shared_databases"]

LIMITED, FREE = f"{__name__}.limited", f"{__name__}.free"
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
HOUR = 3600


async def limited(number: int = 0, customer: str = "") -> int:
    return number


async def free(number: int = 0) -> int:
    return number


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as competitor:
        yield competitor


@pytest.fixture
async def make(migrated_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Open Oxpulls with limits, as if in processes of their own."""
    opened: list[Oxpull] = []

    async def make(*limits: RateLimit) -> Oxpull:
        ox = await Oxpull(migrated_url, rate_limits=limits).open()
        opened.append(ox)
        ox.task(limited)
        ox.task(free)
        return ox

    yield make
    for ox in opened:
        await ox.close()


def ran(competitor: Competitor) -> Counter[str]:
    """How many rows of each task have run."""
    rows = competitor.rows("SELECT task_path FROM django_ox_oxtask WHERE status = 'SUCCESSFUL'")
    return Counter(path.rpartition(".")[2] for (path,) in rows)


def windows(competitor: Competitor) -> dict[str, tuple[int, int]]:
    found = competitor.rows("SELECT limit_name, window_id, used FROM oxpull_oxpullratewindow")
    return {name: (window_id, used) for name, window_id, used in found}


def claim(ox: Oxpull, limit: int = 100, worker: str = "w") -> Any:
    request = ClaimRequest(worker, list(ox.tasks), None, limit, 300, datetime.now(UTC))
    return ox.limits.claim(request)


async def test_no_more_starts_than_the_limit_and_the_others_go_on(make, competitor):
    ox = await make(RateLimit(2, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(4)])
    await ox.tasks[FREE].enqueue_many([(n,) for n in range(3)])

    await ox.run_until_idle()

    assert ran(competitor) == {"limited": 2, "free": 3}
    assert windows(competitor) == {"l": (0, 2)}
    left = competitor.rows("SELECT attempts, run_after FROM django_ox_oxtask WHERE status = 'READY'")
    assert left == [(0, None)] * 2


async def test_a_new_window_lets_the_next_ones_start(make, competitor):
    ox = await make(RateLimit(2, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(5)])
    await ox.run_until_idle()
    competitor.run("UPDATE oxpull_oxpullratewindow SET window_started_at = ?", LONG_AGO)

    await eventually(lambda: _more(ox, competitor, 4), within=20)

    assert windows(competitor) == {"l": (1, 2)}


async def _more(ox: Oxpull, competitor: Competitor, count: int) -> bool:
    await ox.run_until_idle()
    return ran(competitor)["limited"] == count


async def test_a_worker_goes_on_by_itself_when_a_window_is_over(make, competitor):
    ox = await make(RateLimit(1, 1, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(3)])

    async with ox.running(worker=Worker(ox, poll_interval=30)):
        await eventually(lambda: ran(competitor)["limited"] == 3, within=30)

    assert windows(competitor)["l"][0] >= 2


async def test_a_retry_counts_again(make, competitor):
    ox = await make(RateLimit(5, HOUR, queues=["default"], name="l"))

    @ox.task(max_attempts=2, backoff=0)
    async def failing() -> None:
        raise ValueError

    await failing.enqueue()
    await ox.run_until_idle()

    assert windows(competitor) == {"l": (0, 2)}


async def test_a_limit_of_nothing_stops_what_it_covers_alone(make, competitor):
    ox = await make(RateLimit(0, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue()
    await ox.tasks[FREE].enqueue()

    await ox.run_until_idle()

    assert ran(competitor) == {"free": 1}


async def test_a_row_counts_under_each_limit_that_covers_it(make, competitor):
    ox = await make(RateLimit(5, HOUR, tasks=[LIMITED], name="one"), RateLimit(2, HOUR, queues=["default"], name="two"))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(3)])
    await ox.tasks[FREE].using(queue_name="other").enqueue()

    await ox.run_until_idle()

    assert ran(competitor) == {"limited": 2, "free": 1}
    assert windows(competitor) == {"one": (0, 2), "two": (0, 2)}


async def test_three_processes_at_once_stay_within_the_limit(make, competitor):
    oxen = [await make(RateLimit(5, HOUR, tasks=[LIMITED], name="l")) for _ in range(3)]
    await oxen[0].tasks[LIMITED].enqueue_many([(n,) for n in range(30)])
    claims: list[Any] = []

    import anyio

    async def take(ox: Oxpull, number: int) -> None:
        for _ in range(4):
            claims.extend(await claim(ox, 3, f"w{number}"))

    async with anyio.create_task_group() as group:
        for number, ox in enumerate(oxen):
            group.start_soon(take, ox, number)

    assert len(claims) == 5
    assert windows(competitor) == {"l": (0, 5)}


async def test_rows_are_taken_by_priority_across_limited_and_free_ones(make):
    ox = await make(RateLimit(10, HOUR, tasks=[LIMITED], name="l"))
    for priority in (1, 3):
        await ox.tasks[LIMITED].using(priority=priority).enqueue()
    for priority in (2, 4):
        await ox.tasks[FREE].using(priority=priority).enqueue()

    assert [found.priority for found in await claim(ox, 3)] == [4, 3, 2]


async def test_places_that_a_limit_leaves_are_given_to_others(make):
    ox = await make(RateLimit(1, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].using(priority=9).enqueue_many([(n,) for n in range(5)])
    await ox.tasks[FREE].enqueue_many([(n,) for n in range(5)])

    taken = Counter(found.task_path for found in await claim(ox, 4))

    assert taken == {LIMITED: 1, FREE: 3}


async def test_what_is_counted_and_not_found_is_uncounted(make, competitor, monkeypatch):
    ox = await make(RateLimit(5, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(3)])
    reserve = ox.store.reserve

    async def reserve_late(*args: Any) -> Any:
        reserved = await reserve(*args)
        competitor.run("UPDATE django_ox_oxtask SET status = 'DISCARDED'")
        return reserved

    monkeypatch.setattr(ox.store, "reserve", reserve_late)

    assert await claim(ox) == []
    assert windows(competitor) == {"l": (0, 0)}


async def test_a_claim_that_fails_is_uncounted(make, competitor, monkeypatch):
    ox = await make(RateLimit(5, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[LIMITED].enqueue()

    async def fail(request: Any) -> Any:
        raise StoreError("no")

    monkeypatch.setattr(ox.store, "claim", fail)
    with pytest.raises(StoreError):
        await claim(ox)

    assert windows(competitor) == {"l": (0, 0)}


async def test_without_due_rows_nothing_is_counted_or_locked(make, competitor):
    ox = await make(RateLimit(5, HOUR, tasks=[LIMITED], name="l"))
    await ox.tasks[FREE].enqueue()

    assert len(await claim(ox)) == 1
    assert windows(competitor) == {}


async def test_a_smooth_limit_spaces_the_starts(make, competitor):
    ox = await make(RateLimit(10, 1, tasks=[LIMITED], name="l", smooth=True))
    await ox.tasks[LIMITED].enqueue_many([(n,) for n in range(6)])
    began = time.monotonic()

    async with ox.running(worker=Worker(ox, poll_interval=30)):
        await eventually(lambda: ran(competitor)["limited"] == 6, within=30)

    assert time.monotonic() - began >= 0.45
    assert windows(competitor) == {}


@pytest.mark.parametrize("by", ["customer", lambda number=0, customer="": {"name": customer}])
async def test_each_customer_has_a_budget(make, competitor, by):
    ox = await make(RateLimit(2, HOUR, tasks=[LIMITED], name="l", by=by))
    await ox.tasks[LIMITED].enqueue_many([(n, "a") for n in range(5)] + [(n, "b") for n in range(2)])
    await ox.tasks[FREE].enqueue()

    await ox.run_until_idle()

    assert ran(competitor) == {"limited": 4, "free": 1}
    left = competitor.rows("SELECT attempts, worker_ids, run_after FROM django_ox_oxtask WHERE status = 'READY'")
    assert [attempts for attempts, _, _ in left] == [0] * 3
    assert all(run_after is not None for _, _, run_after in left)
    assert competitor.rows("SELECT count(*) FROM oxpull_async_rate_bucket") == [(2,)]


async def test_a_key_that_cant_be_read_doesnt_stop_the_others(make, competitor, caplog):
    ox = await make(RateLimit(9, HOUR, tasks=[LIMITED], name="l", by=lambda number, customer: 1 / number))
    await ox.tasks[LIMITED].enqueue_many([(0, "a"), (1, "a")])

    await ox.run_until_idle()

    assert ran(competitor) == {"limited": 2}
    assert complaints(caplog) == ["rate_limit_key_failed"]


async def test_a_throttled_unique_task_keeps_its_key(make, competitor):
    ox = await make(RateLimit(0, HOUR, tasks=[LIMITED], name="l"))
    first = await ox.tasks[LIMITED].enqueue_unique(1)
    await ox.run_until_idle()

    assert (await ox.tasks[LIMITED].enqueue_unique(1)).id == first.id
    assert competitor.counts() == (1, 1)
