"""One database per engine for many tests, emptied after each: a new one costs more than most tests here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor
from tests.servers.databases import Databases

TABLES = [
    "django_ox_oxscheduletick", "oxpull_oxpullbatchmember", "oxpull_oxpullbatch", "oxpull_oxpulluniquelock",
    "django_ox_oxtask", "django_ox_oxschedule", "django_ox_oxschedulechange", "oxpull_oxpullratewindow",
    "oxpull_async_leader", "oxpull_async_rate_bucket", "oxpull_async_paused_queue", "oxpull_async_queue_limit",
    "oxpull_async_mutex", "oxpull_async_mutex_holder", "oxpull_async_mutex_waiter",
    "oxpull_async_hold", "oxpull_async_rerun",
]  # fmt: skip


class SharedDatabases:
    """The URL of a migrated, empty database, by engine."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._stack = contextlib.ExitStack()
        self._urls: dict[str, str] = {}

    def url(self, engine: str) -> str:
        if engine not in self._urls:
            self._urls[engine] = self._stack.enter_context(self._databases.migrated(engine))
        return self._urls[engine]

    def empty(self, engine: str) -> None:
        """Delete all rows. A database in which a test left a transaction open is given up."""
        try:
            with Competitor(self._urls[engine]) as competitor:
                competitor.be_impatient()
                empty_tables(competitor)
        except Exception:
            del self._urls[engine]
            raise

    def close(self) -> None:
        self._stack.close()


def empty_tables(competitor: Competitor) -> None:
    """Delete all rows."""
    for table in TABLES:
        competitor.run(f"DELETE FROM {table}")


@pytest.fixture(scope="session")
def shared_databases(databases: Databases) -> Iterator[SharedDatabases]:
    shared = SharedDatabases(databases)
    yield shared
    shared.close()


@pytest.fixture
def migrated_url(shared_databases: SharedDatabases, engine: str) -> Iterator[str]:
    """A database with all tables and without rows."""
    yield shared_databases.url(engine)
    shared_databases.empty(engine)
