"""``override``: an application's own ``Oxpull``, on another database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oxpull_async.app import Oxpull
from oxpull_async.exceptions import InvalidSettings

IN_MEMORY = "sqlite:///:memory:"


@contextmanager
def override(ox: Oxpull, database: str = IN_MEMORY) -> Iterator[Oxpull]:
    """While the block lasts, opening ``ox`` connects to ``database`` instead of its own, and makes the tables there.

    Its tasks, hooks and other settings stay, so an application that is told
    ``lifespan=ox.lifespan`` needs no word of the test. Must be entered before
    ``ox`` is opened, and left after it's closed. Raises: InvalidSettings if not.
    """
    _require_closed(ox)
    before, ox.substitutes.database = ox.substitutes.database, database
    try:
        yield ox
        _require_closed(ox)
    finally:
        ox.substitutes.database = before


def _require_closed(ox: Oxpull) -> None:
    if ox.is_open:
        raise InvalidSettings("this Oxpull is open: override its database before it's opened, and until it's closed")
