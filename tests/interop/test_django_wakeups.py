"""A worker elsewhere is told by the COMMIT of a Django transaction in which something was enqueued."""

from __future__ import annotations

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_project.tasks import plain

from oxpull_async import Oxpull
from oxpull_async.integrations.django import DjangoConnection, aatomic
from tests.eventually import eventually

pytestmark = [pytest.mark.engines("postgres"), pytest.mark.usefixtures("django_here")]


async def test_the_commit_of_a_block_tells_of_it_and_a_rollback_does_not(ox: Oxpull) -> None:
    heard: list[str] = []
    bound = ox.bind(DjangoConnection())
    async with ox.store.listener(heard.append, lambda: None):
        with pytest.raises(RuntimeError):
            async with aatomic():
                await bound.enqueue(plain, 0)
                raise RuntimeError
        await ox.store.notify("undone")
        async with aatomic():
            await bound.enqueue_unique(plain, 1)
            await bound.enqueue_many(plain, [(2,), (3,)])
            await ox.store.notify("open")
        await ox.store.notify("committed")

        await eventually(lambda: "committed" in heard, within=30)

    assert heard == ["undone", "open", "ready", "committed"]
