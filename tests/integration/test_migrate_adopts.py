"""Adoption: tables that are there already are used as they are, or refused with words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest

from oxpull_async import Oxpull, WrongDatabase
from tests.integration.competitor import Competitor


async def test_tables_of_an_older_django_ox_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    async with Oxpull(f"sqlite:///{path}") as ox:
        await ox.migrate()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP INDEX IF EXISTS ox_reaper_expiry_idx")
        connection.execute("ALTER TABLE django_ox_oxtask DROP COLUMN lease_expires_at")
        connection.execute("DELETE FROM oxpull_async_migration")
    connection.close()

    async with Oxpull(f"sqlite:///{path}") as ox:
        with pytest.raises(WrongDatabase, match=r"older django-ox.*lease_expires_at.*manage\.py migrate"):
            await ox.migrate()


STEP = "0010_deferred_indexes"
INDEXES = {
    "postgresql": "SELECT indexname FROM pg_indexes WHERE tablename = 'django_ox_oxtask'",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'django_ox_oxtask'",
    "mysql": "SELECT DISTINCT index_name FROM information_schema.statistics "
    "WHERE table_schema = DATABASE() AND table_name = 'django_ox_oxtask'",
}


def own_indexes(competitor: Competitor) -> set[str]:
    found = {str(name) for (name,) in competitor.rows(INDEXES[competitor.scheme])}
    return {name for name in found if name.startswith("oxpull_async_")}


async def test_the_claim_index_of_an_earlier_version_is_replaced_whoever_else_migrates(database_url: str) -> None:
    async with Oxpull(database_url) as ox:
        await ox.migrate()
        with Competitor(database_url) as competitor:
            fresh = own_indexes(competitor)
            on_table = " ON django_ox_oxtask" if competitor.scheme == "mysql" else ""
            for name in fresh & {"oxpull_async_undeferred_idx", "oxpull_async_deferred_idx", "oxpull_async_due_idx"}:
                competitor.run(f"DROP INDEX {name}{on_table}")
            competitor.run("CREATE INDEX oxpull_async_claim_idx ON django_ox_oxtask (task_path, priority, enqueued_at)")
            competitor.run(f"DELETE FROM oxpull_async_migration WHERE name = '{STEP}'")

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(ox.migrate)

            assert own_indexes(competitor) == fresh
