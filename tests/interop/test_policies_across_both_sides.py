"""What is ours alone about unique keys, beside the reference: its worker ends holders, its pruning spares holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from peers import Peer

from oxpull_async import Oxpull, Unique
from tests.integration.competitor import Competitor

pytestmark = pytest.mark.timeout(120)

PLAIN = "django_project.tasks.plain"


def first_of(*arguments: Any) -> Any:
    """What makes two calls the same."""
    return arguments[0]


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


def rows(watcher: Competitor) -> list[tuple[str, list[Any]]]:
    found = watcher.rows("SELECT status, args FROM django_ox_oxtask")
    return sorted((status, json.loads(args) if isinstance(args, str) else args) for status, args in found)


async def test_a_holder_that_their_worker_ends_is_followed_by_its_rerun(
    ox: Oxpull, peer: Peer, watcher: Competitor
) -> None:
    task = ox.reference(PLAIN, unique=Unique(by=first_of, on_duplicate="rerun"))
    first = await task.enqueue("a", 1)
    watcher.set_task(first.id, status="RUNNING")
    await task.enqueue("a", 2)
    watcher.set_task(first.id, status="READY")  # its worker was gone, and the reaper came

    await peer.tell("work")
    assert rows(watcher) == [("SUCCESSFUL", ["a", 1])]
    assert await ox.unique.sweep() == 1
    assert await ox.unique.sweep() == 0

    assert rows(watcher) == [("READY", ["a", 2]), ("SUCCESSFUL", ["a", 1])]
    await peer.tell("work")
    assert rows(watcher) == [("SUCCESSFUL", ["a", 1]), ("SUCCESSFUL", ["a", 2])]


async def test_their_worker_runs_what_a_duplicate_made_of_the_holder(
    ox: Oxpull, peer: Peer, watcher: Competitor
) -> None:
    task = ox.reference(PLAIN, unique=Unique(by=first_of, on_duplicate="replace"))
    first = await task.enqueue("a", 1)
    await task.enqueue("a", 2)

    await peer.tell("work")

    assert (await first.refresh()).return_value["args"] == ["a", 2]


async def test_their_pruning_leaves_a_window_alone(ox: Oxpull, peer: Peer, watcher: Competitor) -> None:
    task = ox.reference(PLAIN, unique=Unique(by=first_of, window=1000))
    first = await task.enqueue("a", 1)
    await peer.tell("work")

    await peer.tell("prune_for", 0.1)

    again = await task.enqueue("a", 2)
    assert (again.id, again.created) == (first.id, False)


async def test_their_unique_tasks_know_nothing_of_our_keys(ox: Oxpull, peer: Peer, watcher: Competitor) -> None:
    path = "django_project.tasks.unique_plain"
    ours = await ox.reference(path, unique=Unique(on_duplicate="rerun")).enqueue("a")

    (theirs,) = await peer.tell("enqueue", "unique_plain", [["a"]])

    assert theirs != str(ours.id)
    assert len(rows(watcher)) == 2
