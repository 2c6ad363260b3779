"""Whether this process can do its work: its database, its tables, its background services."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import ClassVar, Final

import anyio
from pydantic import BaseModel, ConfigDict

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.exceptions import OxpullError, WrongDatabase
from oxpull_async.ports import Store
from oxpull_async.runtime.batch_stats import BatchStats
from oxpull_async.runtime.roster import Roster
from oxpull_async.runtime.service import Service

DEFAULT_TIMEOUT_SECONDS: Final = 5.0


class ServiceHealth(BaseModel):
    """How a background service of this process fares."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    name: str
    running_since: datetime | None
    last_turn_at: datetime | None
    """When a turn last succeeded; None before the first."""
    failures: int
    """How many turns in a row have failed; 0 if the last one succeeded."""
    last_error: str | None
    """The last error there was, even if it's overcome since."""


class Health(BaseModel):
    """Whether this process can do its work. ``ok`` where there are no ``problems``."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    ok: bool
    problems: tuple[str, ...]
    """What is wrong, each in a sentence."""
    is_reachable: bool
    """Whether the database answered in time."""
    latency: float | None
    """How many seconds its answer took; None without one."""
    is_migrated: bool | None
    """Whether the tables are there; None if that couldn't be asked."""
    services: tuple[ServiceHealth, ...]
    """The background services at work in this process; none in a process that only enqueues."""
    batches: BatchStats | None
    """The batches under way, and those that are stuck; None if that couldn't be asked in time. For people to look at:
    a stuck batch is no problem of this process, which other batches and tasks still need."""


class HealthCheck:
    """``await ox.health()``."""

    def __init__(self, store: Callable[[], Store], batches: Callable[[], Awaitable[BatchStats]]) -> None:
        self.roster: Roster = Roster()
        self._store = store
        self._batches = batches

    async def __call__(self, *, timeout: Duration = DEFAULT_TIMEOUT_SECONDS) -> Health:
        """Ask the database, and look at the services; answers within ``timeout`` or little more. Raises: NotOpen.

        An unreachable database is an answer, and no error.
        """
        began, limit = time.monotonic(), seconds(timeout, "timeout")
        latency, problem, is_migrated = await self._probe(self._store(), limit)
        batches = await self._look_at_batches(began + limit - time.monotonic()) if is_migrated else None
        services = self.roster.services
        problems = [*([] if problem is None else [problem]), *self._problems(services)]
        return Health(
            ok=not problems,
            problems=tuple(problems),
            is_reachable=latency is not None,
            latency=latency,
            is_migrated=is_migrated,
            services=tuple(_health(service) for service in services),
            batches=batches,
        )

    async def _probe(self, store: Store, timeout: float) -> tuple[float | None, str | None, bool | None]:
        """How long the answer took, what is wrong, and whether there are tables."""
        began = time.monotonic()
        try:
            with anyio.fail_after(timeout):
                await store.probe()
        except WrongDatabase as error:
            return time.monotonic() - began, f"the tables are missing or not as they should be: {error}", False
        except OxpullError as error:
            return None, f"the database can't be asked: {error}", None
        except TimeoutError:
            return None, f"the database didn't answer within {timeout:g} s", None
        return time.monotonic() - began, None, True

    async def _look_at_batches(self, within: float) -> BatchStats | None:
        with contextlib.suppress(OxpullError), anyio.move_on_after(within):
            return await self._batches()
        return None

    def _problems(self, services: tuple[Service, ...]) -> Iterator[str]:
        for service in services:
            if service.failures:
                yield f"the {service.name} has failed {service.failures} time(s) in a row: {service.last_error}"
        for member, error in self.roster.casualties:
            yield f"{member!r} ended by an error: {error}"


def _health(service: Service) -> ServiceHealth:
    return ServiceHealth(
        name=service.name,
        running_since=service.running_since,
        last_turn_at=service.last_turn_at,
        failures=service.failures,
        last_error=None if service.last_error is None else f"{type(service.last_error).__name__}: {service.last_error}",
    )
