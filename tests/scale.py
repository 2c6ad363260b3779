"""How much the suite does: `OXPULL_TEST_SCALE` is "small" (the default) or "full" (`make soak`)."""

from __future__ import annotations

import os

SCALE = os.environ.get("OXPULL_TEST_SCALE", "small")
if SCALE not in ("small", "full"):
    raise ValueError(f"OXPULL_TEST_SCALE is 'small' or 'full', not {SCALE!r}")


def rounds(*, small: int, full: int) -> int:
    """How often a test repeats its race, or how many rows it makes, at the scale of this run."""
    return full if SCALE == "full" else small
