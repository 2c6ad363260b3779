"""Other clients of the database under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor


@pytest.fixture
def competitor(migrated_url: str) -> Iterator[Competitor]:
    """Another client of the same database."""
    with Competitor(migrated_url) as competitor:
        yield competitor
