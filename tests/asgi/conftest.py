"""Databases as the integration tests have them."""

from __future__ import annotations

from tests.integration.conftest import competitor
from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["competitor", "migrated_url", "shared_databases"]
