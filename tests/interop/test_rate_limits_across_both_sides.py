"""Ours and the reference's workers count their starts in the same windows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from peers import Peer

from oxpull_async import Oxpull, RateLimit
from oxpull_async._contention import retrying
from oxpull_async.ports import ClaimRequest
from tests.integration.competitor import Competitor
from tests.scale import rounds

pytestmark = pytest.mark.timeout(180)

PLAIN, MAIL = "django_project.tasks.plain", "django_project.tasks.with_priority"
LIMIT = 10
OURS = 2
WINDOWS = rounds(small=4, full=60)


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


@pytest.fixture
async def oxen(migrated_url: str) -> AsyncIterator[list[Oxpull]]:
    """Ours, each as if in a process of its own."""
    limit = RateLimit(LIMIT, 3600, tasks=[PLAIN], name="stripe")
    opened = [await Oxpull(migrated_url, rate_limits=[limit]).open() for _ in range(OURS)]
    yield opened
    for ox in opened:
        await ox.close()


def limits(**changes: Any) -> dict[str, dict[str, Any]]:
    return {"stripe": {"limit": LIMIT, "per": 3600, "tasks": [PLAIN]} | changes}


async def claim(ox: Oxpull, limit: int) -> int:
    request = ClaimRequest("ours", [PLAIN, MAIL], None, limit, 300, datetime.now(UTC))
    return len(await retrying(lambda: ox.limits.claim(request)))  # a worker too repeats a claim that deadlocks


def window(watcher: Competitor) -> tuple[int, int]:
    ((window_id, used),) = watcher.rows("SELECT window_id, used FROM oxpull_oxpullratewindow")
    return window_id, used


def end_the_window(watcher: Competitor) -> None:
    watcher.run("UPDATE oxpull_oxpullratewindow SET window_started_at = ?", datetime(2001, 1, 1, tzinfo=UTC))


async def claimed_by_all(oxen: list[Oxpull], peers: list[Peer]) -> list[int]:
    """What all of them find, claiming at once."""
    started: list[int] = []

    async def ours(ox: Oxpull) -> None:
        ox.limits._closed_until.clear()
        for size in (1, 3, 2, 5):
            count = await claim(ox, size)
            started.append(count)

    async def theirs(peer: Peer) -> None:
        started.append(len(await peer.tell("claim_within_limits", 8)))

    async with anyio.create_task_group() as group:
        for ox in oxen:
            group.start_soon(ours, ox)
        for peer in peers:
            group.start_soon(theirs, peer)
    return started


async def test_a_mixed_fleet_overshoots_by_one_for_each_other_process_at_most(
    oxen: list[Oxpull], peers: list[Peer], watcher: Competitor
):
    await oxen[0].reference(PLAIN).enqueue_many([(n,) for n in range(40 * WINDOWS)])
    processes = len(oxen) + len(peers)

    for number in range(WINDOWS):
        for peer in peers:
            await peer.tell("limit", limits())  # a new worker, whose view of the window is fresh
        started = await claimed_by_all(oxen, peers)
        window_id, used = window(watcher)
        assert window_id == number
        assert used == sum(started)
        assert LIMIT <= used <= LIMIT + processes - 1
        end_the_window(watcher)


async def test_what_one_side_has_used_up_is_used_up_for_the_other(oxen: list[Oxpull], peer: Peer, watcher: Competitor):
    await oxen[0].reference(PLAIN).enqueue_many([(n,) for n in range(40)])
    await peer.tell("limit", limits())

    assert len(await peer.tell("claim_within_limits", 7)) == 7
    assert await claim(oxen[0], 20) == 3
    await peer.tell("limit", limits())
    assert await peer.tell("claim_within_limits", 2) == []

    end_the_window(watcher)
    await peer.tell("limit", limits())
    assert len(await peer.tell("claim_within_limits", 1)) == 1
    assert await claim(oxen[1], 20) == 9
    assert window(watcher) == (1, 10)


async def test_a_window_that_we_begin_anew_is_theirs_too(oxen: list[Oxpull], peer: Peer, watcher: Competitor):
    await oxen[0].reference(PLAIN).enqueue_many([(n,) for n in range(40)])
    assert await claim(oxen[0], 20) == LIMIT
    end_the_window(watcher)

    assert await claim(oxen[1], 4) == 4
    await peer.tell("limit", limits())
    assert len(await peer.tell("claim_within_limits", 20)) == 6
    assert window(watcher) == (1, 10)
