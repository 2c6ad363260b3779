"""Django's connection as procedures see it: a whole procedure in one hop into its thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.integrations.django._thread import in_djangos_thread
from oxpull_async.integrations.django._visit import Visit

T = TypeVar("T")

_ENGINES = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql"}


@dataclass(frozen=True)
class Place:
    """Where an entry of DATABASES leads, as far as its settings tell."""

    description: str


_places: dict[str, Place] = {}


class DjangoSession:
    """For the length of one call."""

    def __init__(self, using: str) -> None:
        try:
            # This thread's own, which is never connected; its settings are those of all threads.
            wrapper = connections[using]
        except ConnectionDoesNotExist as error:
            raise InvalidSettings(f"DjangoConnection({using!r}): {error}") from error
        if wrapper.vendor not in _ENGINES:
            raise InvalidSettings(
                f"DATABASES[{using!r}] is of {wrapper.vendor}; oxpull_async works on {', '.join(_ENGINES)}"
            )
        self.engine: str = _ENGINES[wrapper.vendor]
        self._using = using
        self._settings = wrapper.settings_dict

    @property
    def connection(self) -> object:
        """This call's own handle: which connection it leads to is known by the thread alone."""
        return self

    @property
    def identity_holder(self) -> object:
        """The entry of DATABASES: threads, and the connections with them, come and go with each request."""
        settings = {name: self._settings.get(name) for name in ("ENGINE", "NAME", "HOST", "PORT", "USER", "OPTIONS")}
        description = f"{self._using} {settings}"
        return _places.setdefault(description, Place(description))

    async def connect(self) -> object:
        """The connection of the thread that belongs to the code around."""
        return await in_djangos_thread(self._of_this_thread)

    async def prepare(self) -> None:
        """Each hop looks by itself whether there is a transaction."""

    async def run(self, procedure: Procedure[T]) -> T:
        """Raises: TransactionRequired before any SQL."""
        visit = Visit(self._using, self.engine, procedure)
        try:
            return await in_djangos_thread(visit.make, call_off=visit.call_off)
        except asyncio.CancelledError:
            # The savepoint that it was to leave open for its caller has no caller any more.
            with suppress(asyncio.CancelledError):
                await in_djangos_thread(visit.clean_up)
            raise

    def _of_this_thread(self) -> Any:
        return connections[self._using]
