"""A store's life: open, close, migrate."""

from __future__ import annotations

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.exceptions import NotOpen, WrongDatabase
from oxpull_async.ports import Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import inserted, new_task, row
from tests.integration.competitor import Competitor


def unopened(url: str) -> Store:
    return open_store(url, make_settings({"database": url}))


async def test_what_an_engine_can_do_is_known_once_it_is_open(database_url: str, dialect: str):
    store = unopened(database_url)
    with pytest.raises(NotOpen):
        _ = store.capabilities

    await store.open()

    assert store.capabilities.engine in (dialect, "mariadb")
    assert store.capabilities.server_version
    await store.close()
    with pytest.raises(NotOpen):
        _ = store.capabilities


async def test_a_store_opens_without_tables_and_says_what_is_missing(database_url: str):
    store = unopened(database_url)
    await store.open()

    with pytest.raises(WrongDatabase, match="migrate"):
        await store.insert_tasks([new_task()])

    await store.close()


async def test_a_closed_store_refuses_politely_and_can_be_opened_again(migrated_url: str):
    store = unopened(migrated_url)
    with pytest.raises(NotOpen):
        await store.insert_tasks([new_task()])
    await store.open()
    (task,) = await inserted(store)
    await store.close()
    await store.close()
    with pytest.raises(NotOpen):
        await store.get_task(task.id)

    await store.open()

    assert (await row(store, task.id)).status == "READY"
    await store.close()


async def test_a_migrated_database_has_nothing_left_to_migrate(store: Store):
    assert list(await store.migrate()) == []
    assert list(await store.migrate(lean=True)) in ([], ["0001b_task_indexes"])


async def test_several_may_migrate_one_database_at_once(database_url: str):
    stores = [unopened(database_url) for _ in range(4)]
    new_steps: list[str] = []

    async def migrate(store: Store) -> None:
        await store.open()
        new_steps.extend(await store.migrate())

    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(migrate, store)

    assert len(new_steps) == len(set(new_steps)) > 0
    await inserted(stores[0])
    for store in stores:
        await store.close()


@pytest.mark.parametrize("lean", [False, True], ids=["as the reference", "lean"])
async def test_a_new_database_serves_once_it_is_migrated(database_url: str, lean: bool):
    store = unopened(database_url)
    await store.open()

    steps = await store.migrate(lean=lean)

    assert steps == sorted(steps)
    await inserted(store)
    with Competitor(database_url) as competitor:
        assert competitor.counts() == (1, 0)
    await store.close()
