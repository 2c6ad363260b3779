"""What opening makes of a file: its journal, its refusals, and databases in memory."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.drivers.sqlite._writer import Writer
from oxpull_async.drivers.sqlite.pool import Pool
from oxpull_async.exceptions import InvalidSettings, OxpullError, StoreError, WrongDatabase
from oxpull_async.ports import Inserted, Store
from oxpull_async.settings import make_settings
from tests.conformance.rows import inserted, new_task, new_unique, request, row, success
from tests.integration.sqlite_lines import kept
from tests.log_lines import events


def store_at(path: Path | str, **settings: object) -> Store:
    return open_store(f"sqlite:///{path}", make_settings(settings))


@contextmanager
def looked_at(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def test_a_new_file_gets_a_write_ahead_log(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    await store.close()

    with looked_at(tmp_path / "ox.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


async def test_a_file_that_cannot_have_one_is_used_and_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    without_log(monkeypatch)
    caplog.set_level(logging.WARNING, "oxpull_async")
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    (task,) = await inserted(store)

    assert (await row(store, task.id)).status == "READY"
    assert events(caplog).count("sqlite_without_wal") == 1
    await store.close()


async def test_without_a_log_a_commit_waits_for_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    without_log(monkeypatch)
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    with looked_at(tmp_path / "ox.db") as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM django_ox_oxtask").fetchall()
        async with anyio.create_task_group() as group:
            group.start_soon(inserted, store)
            await anyio.sleep(0.1)
            reader.execute("COMMIT")
        assert reader.execute("SELECT COUNT(*) FROM django_ox_oxtask").fetchone() == (1,)
    await store.close()


def without_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pool ask for the journal that a file system without shared memory would leave it with."""
    original = Writer.open

    async def open(self: Writer, journal: str, *others: str) -> list[object]:
        return await original(self, journal.replace("WAL", "DELETE"), *others)

    monkeypatch.setattr(Writer, "open", open)


async def test_a_missing_folder_is_told(tmp_path: Path):
    with pytest.raises(InvalidSettings, match="no folder"):
        await store_at(tmp_path / "nowhere" / "ox.db").open()


async def test_a_file_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("Dear database,\n" * 100)

    with pytest.raises(WrongDatabase):
        await store_at(tmp_path / "letter.txt").open()


async def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(StoreError):
        await store_at(tmp_path).open()


async def test_a_sqlite_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    store = store_at(tmp_path / "ox.db")

    with pytest.raises(WrongDatabase, match=r"3\.35"):
        await store.open()


async def test_a_database_without_tables_opens_and_tells_to_migrate(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()

    with pytest.raises(WrongDatabase, match="migrate"):
        await store.insert_tasks([new_task()])
    with pytest.raises(WrongDatabase, match="migrate"):
        await store.claim(request())
    await store.close()


async def test_opening_waits_for_who_is_writing(tmp_path: Path):
    with looked_at(tmp_path / "ox.db") as connection:
        connection.execute("CREATE TABLE other (n)")
    store = store_at(tmp_path / "ox.db")
    with kept(str(tmp_path / "ox.db")):
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0.1)
        assert not opening.done()
    await opening
    await store.close()


async def test_a_file_that_nobody_lets_go_of_fails_to_open_in_time(tmp_path: Path):
    with looked_at(tmp_path / "ox.db") as connection:
        connection.execute("CREATE TABLE other (n)")
    with kept(str(tmp_path / "ox.db")), pytest.raises(OxpullError):
        await store_at(tmp_path / "ox.db", connect_timeout=0.2).open()


async def test_opening_and_closing_may_repeat(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    for _ in range(3):
        await store.open()
        await store.migrate()
        await inserted(store)
        await store.close()
        await store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_database_in_memory_does_everything(url: str):
    store = open_store(url, make_settings({}))
    await store.open()
    await store.migrate()
    unique = new_unique("a")
    assert await store.insert_unique([unique], wait_seconds=1) == [Inserted()]
    (claim,) = await store.claim(request())
    assert claim.lease_expires_at > claim.enqueued_at
    assert await store.settle([success(claim, 1)]) == [claim.id]
    assert (await row(store, unique.task.id)).return_value == "1"
    await store.close()


async def test_two_databases_in_memory_are_two():
    stores = [open_store("sqlite://", make_settings({})) for _ in range(2)]
    for store in stores:
        await store.open()
        await store.migrate()
    (task,) = await inserted(stores[0])

    assert await stores[1].get_task(task.id) is None
    for store in stores:
        await store.close()


async def test_a_lease_has_its_length_to_the_millisecond(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    for seconds in (300, 1.5, 3600.25):
        (task,) = await inserted(store)
        await store.claim(request(lease_seconds=seconds))
        found = await row(store, task.id)
        assert found.locked_at is not None
        assert found.lease_expires_at is not None
        assert found.lease_expires_at - found.locked_at == timedelta(seconds=seconds)
        assert found.started_at == found.last_attempted_at == found.locked_at
    await store.close()


async def test_worker_ids_are_spelled_as_json_dumps_spells_them(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    (task,) = await inserted(store)
    for worker in ('one "quoted"', "two"):
        claims = await store.claim(request(worker_id=worker))
        if worker != "two":
            with looked_at(tmp_path / "ox.db") as connection:
                connection.execute("UPDATE django_ox_oxtask SET status = 'READY'")

    assert [claim.worker_ids for claim in claims] == ['["one \\"quoted\\"", "two"]']
    assert (await row(store, task.id)).worker_ids == '["one \\"quoted\\"", "two"]'
    await store.close()


async def test_worker_ids_that_somebody_spaced_otherwise_grow_too(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    await inserted(store)
    with looked_at(tmp_path / "ox.db") as connection:
        connection.execute("""UPDATE django_ox_oxtask SET worker_ids = '[ "one" ]'""")

    (claim,) = await store.claim(request(worker_id="two"))

    assert claim.worker_ids == '["one","two"]'
    await store.close()


async def test_a_pool_that_is_open_stays_as_it_is(tmp_path: Path):
    pool = Pool(f"sqlite:///{tmp_path}/ox.db", make_settings({}))
    await pool.open()
    await pool.open()
    await pool.close()


async def test_names_beyond_ascii_survive_a_bulk_insert(tmp_path: Path):
    store = store_at(tmp_path / "ox.db")
    await store.open()
    await store.migrate()
    name = 'Größe 😀 "q"'
    uniques = [new_unique(key, queue_name=name, task_path=f"proof.{name}") for key in "ab"]

    assert await store.insert_unique(uniques, wait_seconds=1) == [Inserted(), Inserted()]

    with looked_at(tmp_path / "ox.db") as connection:
        locks = connection.execute("SELECT DISTINCT queue_name, task_path FROM oxpull_oxpulluniquelock").fetchall()
    assert locks == [(name, f"proof.{name}")]
    assert (await row(store, uniques[0].task.id)).queue_name == name
    await store.close()
