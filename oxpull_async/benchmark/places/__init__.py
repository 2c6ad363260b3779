"""Places of a run's own, beside the user's tables: made before it, removed after it whatever happens.

A killed run leaves its place behind. The next run in the same database knows
it by its name and its mark, and removes it if the run that made it is surely
dead: who makes a place holds a lock for as long as it lives.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Final, TypeAlias, cast

from oxpull_async.drivers import engine_of, open_store
from oxpull_async.settings import Settings

PREFIX: Final = "oxpull_bench_"
NAME: Final = f"{PREFIX}[0-9a-f]{{12}}"
"""What the names of places look like, as a regular expression of any engine."""
MARK: Final = "Made by oxpull-async bench, which removes it"
REMOVAL_SECONDS: Final = 60.0

Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """A database without tables that nobody else uses."""

    name: str
    """In words: "the schema oxpull_bench_…"."""
    url: str


def place_in(url: str, settings: Settings, tell: Tell) -> AbstractAsyncContextManager[Place]:
    """A place in the URL's database (on SQLite, beside its file) for as long as the block lasts.

    Tells of what dead runs have left behind, and of what can't be removed.
    Raises: InvalidSettings, ConnectionLost, WrongDatabase, as opening an
    ``Oxpull`` does; StoreError if this user may make no place there.
    """
    module = import_module(f"{__name__}.{engine_of(url)}")
    return cast("AbstractAsyncContextManager[Place]", module.place_in(url, settings, tell))


def new_name() -> str:
    """A name that nobody has."""
    return PREFIX + secrets.token_hex(6)


async def refuse_unusable(url: str, settings: Settings) -> None:
    """Raises what opening an ``Oxpull`` on this database would."""
    store = open_store(url, settings)
    await store.open()
    await store.close()
