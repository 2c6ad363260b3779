"""How much the suite does: `OXPULL_TEST_SCALE` is "small" (the default) or "full" (`make soak`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from zlib import crc32

from tests.servers.databases import mysql_urls

if TYPE_CHECKING:
    import pytest

SCALE = os.environ.get("OXPULL_TEST_SCALE", "small")
if SCALE not in ("small", "full"):
    raise ValueError(f"OXPULL_TEST_SCALE is 'small' or 'full', not {SCALE!r}")


def rounds(*, small: int, full: int) -> int:
    """How often a test repeats its race, or how many rows it makes, at the scale of this run."""
    return full if SCALE == "full" else small


def in_turn(engines: list[str], test: pytest.Item) -> list[str]:
    """In a small run each test meets one of the further servers; a full run has every test on all of them."""
    further = [name for name in engines if name in mysql_urls()]
    if SCALE == "full" or not further:
        return engines
    kept = further[crc32(test.nodeid.encode()) % len(further)]
    return [name for name in engines if name == kept or name not in further]


LEADING: tuple[str, ...] = ("sqlite", "postgres", "mysql" if SCALE == "full" else "mariadb")
"""For the longest tests: a small run has them on one server of each dialect."""
