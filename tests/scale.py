"""How much the suite does: `OXPULL_TEST_SCALE` is "small" (the default) or "full" (`make soak`)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from tests.servers.databases import dialect_of

if TYPE_CHECKING:
    import pytest

SCALE = os.environ.get("OXPULL_TEST_SCALE", "small")
if SCALE not in ("small", "full"):
    raise ValueError(f"OXPULL_TEST_SCALE is 'small' or 'full', not {SCALE!r}")


def rounds(*, small: int, full: int) -> int:
    """How often a test repeats its race, or how many rows it makes, at the scale of this run."""
    return full if SCALE == "full" else small


def in_turn(engines: list[str], test: pytest.Item) -> list[str]:
    """In a small run each test meets one server of the MySQL family; a full run has every test on all of them."""
    family = [name for name in engines if dialect_of(name) == "mysql"]
    if SCALE == "full" or not family:
        return engines
    kept = family[crc32(test.nodeid.encode()) % len(family)]
    return [name for name in engines if name == kept or name not in family]


STRIDE = rounds(small=3, full=1)


def points(most: int) -> Iterator[int]:
    """At which await or statement a test strikes, from 1: at each of them, or in a small run at every third.

    After the first it begins anywhere, so that all of them are met in a few runs.
    """
    yield 1
    yield from range(random.randint(2, 1 + STRIDE), most, STRIDE)


ONE_ENGINE: tuple[str, ...] = ("sqlite", "postgres") if SCALE == "full" else ("sqlite",)
"""For processes that take seconds to start, in tests that ask little of the database."""

LEADING: tuple[str, ...] = ("sqlite", "postgres", "mysql" if SCALE == "full" else "mariadb")
"""For the longest tests: a small run has them on one server of each dialect."""
