"""Other clients of the database under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor
from tests.integration.doomed import Doomed
from tests.integration.racers import Racers
from tests.integration.shared_database import SharedDatabases, migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    """Another client of the same database."""
    with Competitor(migrated_url) as competitor:
        yield competitor


@pytest.fixture(scope="session")
def doomed() -> Iterator[Doomed]:
    """Forks processes that are to be killed."""
    doomed = Doomed()
    yield doomed
    doomed.close()


@pytest.fixture(scope="session")
def started_racers(shared_databases: SharedDatabases) -> Iterator[dict[str, Racers]]:
    """The racing processes by the URL of their database: starting them takes longer than most races."""
    started: dict[str, Racers] = {}
    yield started
    for racers in started.values():
        racers.close()


@pytest.fixture
def racers(migrated_url: str, started_racers: dict[str, Racers]) -> Racers:
    """Four processes that race at the database under test."""
    if migrated_url not in started_racers:
        started_racers[migrated_url] = Racers(migrated_url)
    return started_racers[migrated_url]
