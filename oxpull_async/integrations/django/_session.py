"""Django's connection as procedures see it: a whole procedure in one hop into its thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.integrations.django._thread import in_djangos_thread
from oxpull_async.integrations.django._visit import Occupied, Savepoints, Visit

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.5
ENGINES = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql"}


@dataclass(frozen=True)
class Place:
    """Where an entry of DATABASES leads, as far as its settings tell."""

    description: str


_places: dict[str, Place] = {}


class DjangoSession:
    """For the length of one call.

    A hop into the thread is all or nothing for its procedure, so calls on one
    connection need not wait for each other between hops. Only a savepoint
    that outlasts its hop keeps the others out until it's closed.
    """

    def __init__(self, using: str) -> None:
        try:
            # This thread's own, which is never connected; its settings are those of all threads.
            wrapper = connections[using]
        except ConnectionDoesNotExist as error:
            raise InvalidSettings(f"DjangoConnection({using!r}): {error}") from error
        if wrapper.vendor not in ENGINES:
            raise InvalidSettings(
                f"DATABASES[{using!r}] is of {wrapper.vendor}; oxpull_async works on {', '.join(ENGINES)}"
            )
        self.engine: str = ENGINES[wrapper.vendor]
        self._using = using
        self._settings = wrapper.settings_dict
        self._savepoints = Savepoints()

    @property
    def connection(self) -> object:
        """Nothing that others have: see the class."""
        return self

    @property
    def identity_holder(self) -> object:
        settings = {name: self._settings.get(name) for name in ("ENGINE", "NAME", "HOST", "PORT", "USER", "OPTIONS")}
        description = f"{self._using} {settings}"
        return _places.setdefault(description, Place(description))

    async def prepare(self) -> None:
        """Each hop looks by itself whether there is a transaction."""

    async def run(self, procedure: Procedure[T]) -> T:
        """Raises: TransactionRequired before any SQL."""
        while True:
            visit = Visit(self._using, self.engine, procedure, self._savepoints)
            answer = await in_djangos_thread(visit.make, call_off=visit.call_off)
            if not isinstance(answer, Occupied):
                return answer
            # Looked at again now and then, since an occupant that could not close its savepoint tells nobody.
            await asyncio.wait([asyncio.wrap_future(answer.until)], timeout=_LOOK_AGAIN_SECONDS)
