"""Workers delete what was settled long ago: by chunks, one process at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from oxpull_async import Oxpull, Worker
from oxpull_async.runtime import batch_pruning, upkeep
from oxpull_async.runtime.pruner import Ages, Pruner
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.log_lines import events

HOUR = 3600


def settled(competitor: Competitor, status: str = "SUCCESSFUL", *, hours_ago: float) -> UUID:
    return competitor.insert_task(status=status, finished_at=datetime.now(UTC) - timedelta(hours=hours_ago))


def a_worker(ox: Oxpull) -> dict[str, Any]:
    return {"worker": Worker(ox, prune_older_than=HOUR)}


def no_worker(ox: Oxpull) -> dict[str, Any]:
    return {"prune_older_than": timedelta(seconds=HOUR)}


@pytest.mark.parametrize("how", [a_worker, no_worker])
async def test_what_is_old_enough_is_deleted_chunk_by_chunk(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: Any
):
    monkeypatch.setattr(upkeep, "PRUNE_CHUNK", 2)
    caplog.set_level("INFO", "oxpull_async")
    for _ in range(5):
        settled(competitor, hours_ago=2)
    kept = {settled(competitor, hours_ago=0.5), settled(competitor, "FAILED", hours_ago=2), competitor.insert_task()}

    async with ox.running(**how(ox)):
        await eventually(lambda: set(competitor.statuses()) == kept)
        await eventually(lambda: "rows_pruned" in events(caplog))

    (told,) = [record for record in caplog.records if getattr(record, "event", None) == "rows_pruned"]
    assert told.__dict__["tasks"] == 5


async def test_workers_delete_completed_batches_too_from_the_age_that_is_set(
    migrated_url: str, competitor: Competitor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch_pruning, "_MEMBERS", 2)
    async with Oxpull(migrated_url, reconciler="external", prune_batches_older_than=0) as ox:
        task = ox.reference("elsewhere.tasks.task")
        done, open_one = [await ox.batches.create(name) for name in ("done", "open")]
        for batch in (done, open_one):
            await batch.add_many(task, [(number,) for number in range(5)])
        await done.seal()
        settle = "UPDATE django_ox_oxtask SET status = 'SUCCESSFUL', finished_at = enqueued_at"
        competitor.run(settle)
        await ox.batches.reconcile()

        async with ox.running(worker=Worker(ox)):
            await eventually(lambda: competitor.rows("SELECT name FROM oxpull_oxpullbatch") == [("open",)])

    assert competitor.rows("SELECT count(*) FROM oxpull_oxpullbatchmember") == [(5,)]
    assert len(competitor.statuses()) == 10  # task rows have an age of their own


async def test_one_at_a_time_does_it(ox: Oxpull, migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url) as other:
        ours, theirs = Pruner(ox, Ages(settled=HOUR)), Pruner(other, Ages(settled=HOUR))
        assert 0 < await ours.turn() <= 60
        old = settled(competitor, hours_ago=2)

        assert await theirs.turn() > 60
        assert set(competitor.statuses()) == {old}

        await ours.turn()
        assert competitor.statuses() == {}


async def test_a_run_that_has_an_end_prunes_nothing(ox: Oxpull, competitor: Competitor):
    old = settled(competitor, hours_ago=2)

    await Worker(ox, prune_older_than=HOUR).run(until_idle=True)

    assert set(competitor.statuses()) == {old}
