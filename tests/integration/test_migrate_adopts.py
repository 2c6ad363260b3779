"""Adoption: tables that are there already are used as they are, or refused with words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from oxpull_async import Oxpull, WrongDatabase


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
