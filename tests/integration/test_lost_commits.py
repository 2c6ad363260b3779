"""A COMMIT whose reply is lost, and whose rows have run by the time that the call is repeated."""

from __future__ import annotations

from typing import Any

import pytest

from oxpull_async import EnqueueResult, Oxpull, Unique
from tests.integration.deaf import Deaf

UNIQUES = {
    "plain": Unique(),
    "by": Unique(by=("name",)),
    "ready": Unique(hold="ready"),
    "window": Unique(window=60),
    "rerun": Unique(on_duplicate="rerun"),
}


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("kind", UNIQUES)
async def test_rows_that_ran_before_the_call_was_repeated_are_its_own(migrated_url: str, kind: str, many: bool):
    ran: list[str] = []

    async with Oxpull(migrated_url) as ox, Oxpull(migrated_url) as worker:

        async def send(name: str) -> None:
            ran.append(name)

        worker.task(send)
        task = ox.task(unique=UNIQUES[kind])(send)
        deaf = Deaf(worker.run_until_idle).install(ox)
        if many:
            results = await ox.enqueue_many(task, [("a",), ("b",), ("a",)])
        else:
            results = [await task.enqueue("a")]
        await worker.run_until_idle()

        assert not deaf.is_deaf
        assert [result.created for result in results] == ([True, True, False] if many else [True])
        assert sorted(ran) == (["a", "b"] if many else ["a"])
        assert [(await refreshed(result)).status for result in results] == ["SUCCESSFUL"] * len(results)
        if many:
            assert results[0].id == results[2].id


async def refreshed(result: EnqueueResult) -> Any:
    return await result.refresh()
