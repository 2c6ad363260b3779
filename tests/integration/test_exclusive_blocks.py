"""`ox.exclusive(…)`: who gets in, in what order, for how long, and what is left of those who give up."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import anyio
import pytest

from oxpull_async import ConnectionLost, ExclusiveLost, ExclusiveTimeout, InvalidArguments, NotOpen, Oxpull
from tests.conformance.exclusive_rows import counts, run_out
from tests.eventually import eventually
from tests.integration.cancelling import Kind, Moment, cancelled_at
from tests.integration.competitor import Competitor
from tests.integration.faults import Fault
from tests.integration.faults import Moment as FaultMoment

KEY = "feed:https://example.org/rss"


@pytest.fixture
async def ox(migrated_url: str) -> AsyncIterator[Oxpull]:
    async with Oxpull(migrated_url) as ox:
        yield ox


@pytest.fixture
async def other(migrated_url: str) -> AsyncIterator[Oxpull]:
    """Another process, as far as the database knows."""
    async with Oxpull(migrated_url) as ox:
        yield ox


async def test_a_block_has_its_key_alone(ox: Oxpull, other: Oxpull, competitor: Competitor):
    async with ox.exclusive(KEY) as held:
        assert (held.name, held.lost.is_set()) == (KEY, False)
        held.check()
        with pytest.raises(ExclusiveTimeout, match="feed:https://example.org/rss"):
            async with other.exclusive(KEY, wait=0):
                pytest.fail("two are inside")
        async with other.exclusive("another key", wait=0):
            pass

    async with other.exclusive(KEY, wait=0) as later:
        assert later.fence > held.fence
    assert counts(competitor) == (0, 0)


async def test_a_key_with_a_limit_lets_in_so_many(ox: Oxpull, other: Oxpull):
    async with ox.exclusive(KEY, limit=2) as first, other.exclusive(KEY, limit=2, wait=0) as second:
        assert first.fence != second.fence
        with pytest.raises(ExclusiveTimeout):
            async with ox.exclusive(KEY, limit=2, wait=0):
                pytest.fail("three are inside")


async def test_a_wait_ends_in_time(ox: Oxpull, other: Oxpull, competitor: Competitor):
    async with ox.exclusive(KEY):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with other.exclusive(KEY, wait=timedelta(seconds=0.3)):
                pytest.fail("two are inside")
        assert time.monotonic() - began > 0.25
        assert counts(competitor) == (1, 0)


async def test_what_the_block_raises_is_raised_and_the_key_is_given_back(ox: Oxpull, competitor: Competitor):
    for error in (ValueError, TimeoutError):
        with pytest.raises(error, match="mine"):
            async with ox.exclusive(KEY):
                raise error("mine")
        assert counts(competitor) == (0, 0)


async def test_within_a_process_the_next_is_told_at_once(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("oxpull_async.runtime.exclusive_blocks.poll_pause", lambda polls, chance: 1000.0)

    assert await order_of_callers(5, competitor, ox) == list(range(5))


async def test_callers_get_in_in_the_order_in_which_they_came(ox: Oxpull, other: Oxpull, competitor: Competitor):
    assert await order_of_callers(4, competitor, ox, other) == list(range(4))


async def order_of_callers(callers: int, competitor: Competitor, *processes: Oxpull) -> list[int]:
    """In which order callers got in who came one after the other, while the key was held."""
    order: list[int] = []

    async def wait(process: Oxpull, index: int) -> None:
        async with process.exclusive(KEY, wait=30):
            order.append(index)

    def are_waiting(expected: int) -> Callable[[], bool]:
        return lambda: counts(competitor)[1] == expected

    async with anyio.create_task_group() as group, processes[0].exclusive(KEY):
        for index, process in zip(range(callers), itertools.cycle(processes), strict=False):
            group.start_soon(wait, process, index)
            await eventually(are_waiting(index + 1))
    return order


async def test_who_waits_looks_rarely_and_writes_nothing(
    ox: Oxpull, other: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    asked = 0
    store: Any = other.store.exclusive
    acquire = store.acquire

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        return await acquire(*args, **kwargs)

    monkeypatch.setattr(store, "acquire", counted)
    async with ox.exclusive(KEY):
        with pytest.raises(ExclusiveTimeout):
            async with other.exclusive(KEY, wait=1):
                pytest.fail("two are inside")

    assert asked == 1


# Leases


async def test_a_lease_is_renewed_for_as_long_as_the_block_lasts(ox: Oxpull, other: Oxpull):
    async with ox.exclusive(KEY, lease=1) as held:
        with pytest.raises(ExclusiveTimeout):
            async with other.exclusive(KEY, wait=2):
                pytest.fail("two are inside")
        held.check()


async def test_a_block_that_has_lost_its_lease_is_cancelled(ox: Oxpull, other: Oxpull, competitor: Competitor):
    cancelled = False
    with pytest.raises(ExclusiveLost):
        async with ox.exclusive(KEY, lease=3) as held:
            run_out(competitor)
            async with other.exclusive(KEY, wait=0) as later:
                assert later.fence > held.fence
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    cancelled = True
                    with pytest.raises(ExclusiveLost):
                        held.check()
                    raise
    assert cancelled
    assert held.lost.is_set()


async def test_the_token_keeps_out_the_writes_of_a_process_that_was_paused_past_its_lease(
    ox: Oxpull, migrated_url: str
):
    newest, refused = 0, []

    def write(fence: int) -> None:
        """What anything that is written to can do."""
        nonlocal newest
        if fence < newest:
            refused.append(fence)
        newest = max(fence, newest)

    async def meanwhile() -> None:
        async with Oxpull(migrated_url) as other, other.exclusive(KEY, wait=20) as later:
            write(later.fence)

    with pytest.raises(ExclusiveLost):
        async with ox.exclusive(KEY, lease=1) as held:
            write(held.fence)
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, meanwhile()).result()  # nothing else goes on here
            write(held.fence)
            await asyncio.sleep(30)

    assert refused == [held.fence]


async def test_a_block_ends_by_its_own_clock_where_the_database_is_away(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ExclusiveLost):
        async with ox.exclusive(KEY, lease=1):

            async def away(places: Any) -> Any:
                raise ConnectionLost("away")

            monkeypatch.setattr(ox.store.exclusive, "renew", away)
            await asyncio.sleep(30)


async def test_a_block_that_ends_after_its_lease_was_lost_says_so(ox: Oxpull, other: Oxpull, competitor: Competitor):
    with pytest.raises(ExclusiveLost):
        async with ox.exclusive(KEY) as held:
            run_out(competitor)
            async with other.exclusive(KEY, wait=0):
                pass
    assert held.lost.is_set()


async def test_a_cancel_from_outside_is_a_cancel(ox: Oxpull, competitor: Competitor):
    with anyio.move_on_after(0.1) as scope:
        async with ox.exclusive(KEY):
            await asyncio.sleep(30)

    assert scope.cancelled_caught
    assert counts(competitor) == (0, 0)


# Giving up


@pytest.mark.parametrize("kind", ["task", "scope"])
@pytest.mark.parametrize("moment", ["waiting", "answered"])
async def test_nothing_is_left_of_a_caller_who_was_cancelled_at_any_await(
    ox: Oxpull, competitor: Competitor, kind: Kind, moment: Moment
):
    async def visit() -> None:
        async with ox.exclusive(KEY):
            await asyncio.sleep(0)

    for at in range(1, 100):
        outcome = await cancelled_at(visit(), at, moment, kind)
        assert counts(competitor) == (0, 0), f"await {at}"
        if not outcome.struck:
            break
    assert not outcome.struck


@pytest.mark.parametrize("kind", ["task", "scope"])
async def test_nothing_is_left_of_a_caller_who_was_cancelled_while_it_waited(
    ox: Oxpull, other: Oxpull, competitor: Competitor, kind: Kind
):
    async def visit() -> None:
        async with other.exclusive(KEY):
            pytest.fail("two are inside")

    async with ox.exclusive(KEY):
        for at in range(1, 12):
            assert (await cancelled_at(visit(), at, "answered", kind)).struck
            assert counts(competitor) == (1, 0), f"await {at}"


async def test_a_place_kept_for_who_gives_up_goes_to_the_next(ox: Oxpull, other: Oxpull, competitor: Competitor):
    got_in = asyncio.Event()

    async def wait(process: Oxpull) -> None:
        async with process.exclusive(KEY):
            got_in.set()

    async with anyio.create_task_group() as group:
        async with ox.exclusive(KEY):
            first = asyncio.create_task(wait(ox))
            await eventually(lambda: counts(competitor)[1] == 1)
            group.start_soon(wait, other)
            await eventually(lambda: counts(competitor)[1] == 2)
            first.cancel()
        with anyio.fail_after(10):
            await got_in.wait()
    assert counts(competitor) == (0, 0)


@pytest.mark.parametrize("moment", ["before", "after", "unheard"])
async def test_a_fault_at_any_statement_leaves_no_key_taken(ox: Oxpull, competitor: Competitor, moment: FaultMoment):
    def lose() -> None:
        if moment != "unheard":
            raise ConnectionLost("the connection has died")

    visits = 0
    real: Any = ox.store
    pool = real._pool
    for at in range(1, 40):
        fault = Fault(at, moment, lose)
        fault.install(ox)
        async with ox.exclusive(KEY, wait=0):
            visits += 1
        real._pool = pool
        assert counts(competitor) == (0, 0), f"statement {at}"
        if not fault.struck:
            break
    assert visits == at > 4


async def test_a_key_that_can_t_be_given_back_is_left_to_its_lease(
    ox: Oxpull, other: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    async def away(places: Any) -> Any:
        raise ConnectionLost("away")

    async with ox.exclusive(KEY):
        monkeypatch.setattr(ox.store.exclusive, "release", away)

    assert "couldn't be given back" in caplog.text
    run_out(competitor)
    async with other.exclusive(KEY, wait=0):
        pass


# Arguments


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (1, {}),
        (None, {}),
        (KEY, {"lease": 0.5}),
        (KEY, {"lease": "60"}),
        (KEY, {"lease": None}),
        (KEY, {"wait": -1}),
        (KEY, {"wait": float("nan")}),
        (KEY, {"limit": 0}),
        (KEY, {"limit": True}),
        (KEY, {"limit": 1.5}),
    ],
)
@pytest.mark.engines("sqlite")
async def test_what_makes_no_sense_is_refused_before_any_sql(ox: Oxpull, key: Any, options: dict[str, Any]):
    with pytest.raises(InvalidArguments):
        ox.exclusive(key, **options)


@pytest.mark.engines("sqlite")
async def test_a_closed_oxpull_has_no_keys(migrated_url: str):
    with pytest.raises(NotOpen):
        async with Oxpull(migrated_url).exclusive(KEY):
            pytest.fail("it isn't open")
