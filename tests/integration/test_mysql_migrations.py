"""Making the tables on MariaDB and MySQL: beside others, beside what is there, on any character set."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.drivers.mysql import migrations
from oxpull_async.exceptions import WrongDatabase
from oxpull_async.ports import Held, Inserted, Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import claimed, new_task, new_unique, request, success
from tests.integration.competitor import Competitor

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, make_settings({}))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def migrated_url(database_url: str) -> str:
    """Each of these tests has an empty database of its own."""
    return database_url


async def test_the_tables_are_made_once(database_url: str):
    async with opened(database_url) as store:
        first = await store.migrate()
        second = await store.migrate()

    assert len(first) > 1
    assert list(second) == []


async def test_of_many_who_migrate_at_once_each_finds_all_tables(database_url: str, competitor: Competitor):
    made: list[Any] = []

    async def migrate() -> None:
        async with opened(database_url) as store:
            made.append(await store.migrate())
            await store.insert_unique([new_unique(f"{len(made)}")], wait_seconds=5)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(migrate)

    assert sorted(len(steps) for steps in made)[:3] == [0, 0, 0]
    assert competitor.counts() == (4, 4)


async def test_a_step_that_was_cut_off_is_begun_again(database_url: str, competitor: Competitor):
    async with opened(database_url) as store:
        steps = await store.migrate()
        competitor.run("DELETE FROM oxpull_async_migration")
        competitor.run("DROP INDEX oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock")
        competitor.run("DROP TABLE oxpull_async_leader")

        again = await store.migrate()

    assert again == steps
    assert competitor.rows("SHOW INDEX FROM oxpull_oxpulluniquelock WHERE Key_name = 'oxpull_async_lock_task_idx'")
    assert competitor.rows("SHOW TABLES LIKE 'oxpull_async_leader'")


async def test_ids_are_stored_as_the_task_table_that_is_there_has_them(database_url: str, competitor: Competitor):
    text = next(
        statement.text
        for step in migrations.schema(lean=False, uuid_type="char(32) COLLATE utf8mb4_bin")
        for statement in step.statements
        if statement.text.startswith("CREATE TABLE IF NOT EXISTS django_ox_oxtask (")
    )
    competitor.run(text)

    async with opened(database_url) as store:
        await store.migrate()
        await store.insert_unique([new_unique("a")], wait_seconds=1)

    columns = competitor.rows(
        "SELECT table_name, column_type, collation_name FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND column_name = 'task_id'"
    )
    assert {(kind, collation) for _, kind, collation in columns} == {("char(32)", "utf8mb4_bin")}
    assert len(columns) > 2


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4 COLLATE utf8mb4_bin", "ascii"])
async def test_any_character_set_will_do(database_url: str, competitor: Competitor, charset: str):
    competitor.run(f"ALTER DATABASE CHARACTER SET {charset}")
    candidate = new_unique("a", args='["\\u00e9"]')

    async with opened(database_url) as store:
        await store.migrate()
        assert await store.insert_unique([candidate], wait_seconds=1) == [Inserted()]
        (again,) = await store.insert_unique([new_unique("a")], wait_seconds=1)
        (claim,) = await store.claim(request(queues=["default"]))
        assert await store.settle([success(claim, ["é😀"])]) == [claim.id]
        more = await claimed(store, count=3)
        assert len(await store.release(more, worker_id=request().worker_id)) == 3

    assert isinstance(again, Held)
    assert competitor.counts() == (4, 0)


async def test_without_tables_it_is_told_how_to_make_them(database_url: str):
    async with opened(database_url) as store:
        with pytest.raises(WrongDatabase, match="migrate"):
            await store.insert_tasks([new_task()])


async def test_a_database_whose_name_is_long_can_be_locked(database_url: str, competitor: Competitor):
    name = "n" * 64
    competitor.run(f"CREATE DATABASE {name}")
    try:
        async with opened(f"{database_url.rpartition('/')[0]}/{name}") as store:
            assert await store.migrate()
    finally:
        competitor.run(f"DROP DATABASE {name}")
