"""Other clients of the database under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor
from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    """Another client of the same database."""
    with Competitor(migrated_url) as competitor:
        yield competitor
