"""The store under test: opened over the ports alone, on a new database with all tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from oxpull_async.drivers import open_store
from oxpull_async.ports import Store
from oxpull_async.settings import make_settings
from tests.integration.competitor import Competitor
from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]


@pytest.fixture
async def store(migrated_url: str) -> AsyncIterator[Store]:
    """An open store on a new database with all tables."""
    store = open_store(migrated_url, make_settings({"database": migrated_url}))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    """Another client of the same database."""
    with Competitor(migrated_url) as competitor:
        yield competitor
