"""``ox.stats.batches()`` and what ``ox.health()`` has of it: batches under way, and those that are stuck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from oxpull_async import Batch, ConnectionLost, Oxpull
from tests.integration.batching import Tasks, Watched
from tests.integration.competitor import Competitor


@pytest.fixture
def tasks(ox: Oxpull) -> Tasks:
    return Tasks(ox)


@pytest.fixture
def seen(competitor: Competitor, tasks: Tasks) -> Watched:
    return Watched(competitor, tasks)


@pytest.fixture
def led(ox: Oxpull, competitor: Competitor) -> None:
    """Another process completes batches, as far as one can see."""
    competitor.run(
        "INSERT INTO oxpull_async_leader (role, holder, expires_at) VALUES (?, ?, ?)",
        ox.batches._reconciler.role, "another", datetime.now(UTC) + timedelta(seconds=9),
    )  # fmt: skip


async def sealed(ox: Oxpull, tasks: Tasks, seen: Watched, status: str) -> Batch:
    """A batch with one member of this status."""
    async with ox.batches.create("proof", on_complete=tasks.done) as batch:
        member = await batch.add(tasks.work)
    seen.settle([member.id], status)
    return batch


async def test_where_no_batches_are_used_all_is_well(ox: Oxpull):
    health = await ox.health()

    assert health.ok
    assert health.batches is not None
    assert health.batches == await ox.stats.batches()
    assert (health.batches.open, health.batches.sealed, health.batches.stuck) == (0, 0, ())
    assert (health.batches.oldest_open_at, health.batches.oldest_sealed_at, health.batches.last_led) == (None,) * 3


async def test_batches_under_way_are_counted_and_not_stuck(ox: Oxpull, tasks: Tasks, seen: Watched):
    open_batch = await ox.batches.create("open")
    await ox.batches.create("also open")
    await sealed(ox, tasks, seen, "READY")

    found = await ox.stats.batches()

    assert (found.open, found.sealed, found.stuck) == (2, 1, ())
    (oldest,) = [info for info in await ox.batches.latest() if info.id == open_batch.id]
    assert found.oldest_open_at == oldest.created_at


async def test_a_batch_whose_callback_is_unknown_here_is_stuck_and_this_process_well_all_the_same(
    ox: Oxpull, tasks: Tasks, seen: Watched, migrated_url: str
):
    batch = await sealed(ox, tasks, seen, "SUCCESSFUL")
    await sealed(ox, tasks, seen, "READY")

    async with Oxpull(migrated_url) as stranger:
        health = await stranger.health()

    assert health.ok
    assert health.batches is not None
    (stuck,) = health.batches.stuck
    assert (stuck.id, tasks.done.path in stuck.reason) == (batch.id, True)


@pytest.mark.usefixtures("led")
async def test_a_batch_that_can_be_completed_is_stuck_only_while_its_callback_cannot_be_enqueued(
    ox: Oxpull, tasks: Tasks, seen: Watched
):
    batch = await sealed(ox, tasks, seen, "SUCCESSFUL")
    assert (await ox.stats.batches()).stuck == ()
    options, tasks.done.options = tasks.done.options, tasks.single.options

    (stuck,) = (await ox.stats.batches()).stuck

    assert (stuck.id, "unique" in stuck.reason) == (batch.id, True)
    assert await ox.batches.reconcile() == 0
    assert [each.id for each in (await ox.stats.batches()).stuck] == [batch.id]
    tasks.done.options = options
    assert await ox.batches.reconcile() == 1
    assert (await ox.stats.batches()).stuck == ()


async def test_a_batch_that_nobody_completes_is_stuck(ox: Oxpull, tasks: Tasks, seen: Watched):
    batch = await sealed(ox, tasks, seen, "SUCCESSFUL")

    (stuck,) = (await ox.stats.batches()).stuck

    assert (stuck.id, "no process" in stuck.reason) == (batch.id, True)


async def test_who_completes_batches_elsewhere_is_given_time_before_a_batch_is_called_stuck(
    ox: Oxpull, tasks: Tasks, seen: Watched, migrated_url: str
):
    """A Django fleet looks once a minute, and leaves no trace of its being there."""
    now = datetime.now(UTC)
    async with Oxpull(migrated_url, reconciler="external") as external:
        Tasks(external)
        external.clock.read_from(lambda: now)
        batch = await sealed(ox, tasks, seen, "SUCCESSFUL")

        assert (await external.stats.batches()).stuck == ()
        now += timedelta(minutes=2)
        assert (await external.stats.batches()).stuck == ()
        now += timedelta(minutes=2)
        (stuck,) = (await external.stats.batches()).stuck
        assert (stuck.id, "no process" in stuck.reason) == (batch.id, True)


async def test_a_second_look_does_not_read_the_members_again(
    ox: Oxpull, tasks: Tasks, seen: Watched, monkeypatch: pytest.MonkeyPatch
):
    idle, held = await sealed(ox, tasks, seen, "SUCCESSFUL"), await sealed(ox, tasks, seen, "READY")
    looks: list[Any] = []
    scan = ox.store.batches.scan

    async def counted(batch_id: Any, **bounds: Any) -> Any:
        looks.append(batch_id)
        return await scan(batch_id, **bounds)

    monkeypatch.setattr(ox.store.batches, "scan", counted)
    first = await ox.stats.batches()
    assert {idle.id, held.id} == set(looks)
    looks.clear()

    assert (await ox.stats.batches()).stuck == first.stuck
    assert looks == []


async def test_a_witness_that_has_settled_is_replaced(ox: Oxpull, tasks: Tasks, seen: Watched):
    async with ox.batches.create("proof", on_complete=tasks.done) as batch:
        first, last = await batch.add(tasks.work), await batch.add(tasks.work)
    assert (await ox.stats.batches()).stuck == ()
    seen.settle([last.id], "SUCCESSFUL")
    assert (await ox.stats.batches()).stuck == ()

    seen.settle([first.id], "FAILED")

    assert [each.id for each in (await ox.stats.batches()).stuck] == [batch.id]


async def test_a_wide_batch_is_asked_for_its_highest_pending_member(ox: Oxpull, tasks: Tasks):
    async with ox.batches.create("wide") as batch:
        added = await batch.add_many(tasks.work, [(number,) for number in range(3_100)])
    await ox.actions.discard_many([each.id for each in added[1:]])
    assert (await ox.stats.batches()).stuck == ()

    await ox.actions.discard(added[0].id)

    assert [each.id for each in (await ox.stats.batches()).stuck] == [batch.id]


@pytest.mark.engines("sqlite")
async def test_batches_that_cannot_be_asked_about_are_left_out_of_the_health(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch
):
    async def cut_off(*args: Any, **bounds: Any) -> Any:
        raise ConnectionLost("as it happens")

    async def silent(*args: Any, **bounds: Any) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr(ox.store.batches, "last_led", cut_off)
    health = await ox.health()
    assert (health.ok, health.batches) == (True, None)
    monkeypatch.setattr(ox.store.batches, "last_led", silent)
    assert await ox.health._look_at_batches(within=0.01) is None
