"""Ids of task rows and batches, made by us so that a lock row can carry one from the start."""

from __future__ import annotations

import sys
from uuid import UUID

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    # Its own hook reseeds the generator in a forked child.
    from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """A UUIDv7: unique, and ascending in time, which keeps inserts at the end of the primary key."""
    return uuid7()
