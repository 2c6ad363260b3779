"""For Litestar: a plugin with the lifespan, the queue as a dependency, and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import click
from litestar import Litestar
from litestar.di import NamedDependency, Provide
from litestar.plugins import CLIPlugin, InitPlugin

from oxpull_async.app import Oxpull
from oxpull_async.batches.bound import BoundOxpull
from oxpull_async.cli import run_for
from oxpull_async.runtime.worker import Worker

if TYPE_CHECKING:
    from litestar.config.app import AppConfig

__all__ = ["BoundOxpull", "OxpullPlugin", "Queue"]

Queue: TypeAlias = NamedDependency[Oxpull]
"""The type of a handler's parameter ``queue``."""


class OxpullPlugin(InitPlugin, CLIPlugin):
    """``Litestar(plugins=[OxpullPlugin(ox)])``.

    Opens ``ox`` with the application and closes it with it; ``worker`` works
    in between. Handlers have the queue as their parameter ``queue``
    (``dependency_key``), and ``litestar oxpull worker``, ``litestar oxpull
    migrate`` and so on are the commands of ``oxpull-async`` for ``ox``.
    """

    def __init__(self, ox: Oxpull, *, worker: Worker | None = None, dependency_key: str = "queue") -> None:
        self._ox = ox
        self._worker = worker
        self._key = dependency_key

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Called by Litestar."""
        app_config.lifespan = [*app_config.lifespan, self._lifespan]
        app_config.dependencies = {**app_config.dependencies, self._key: Provide(self._queue, sync_to_thread=False)}
        app_config.signature_types = [*app_config.signature_types, Oxpull, BoundOxpull]
        return app_config

    def on_cli_init(self, cli: click.Group) -> None:
        """Called by Litestar."""

        @cli.command(
            name="oxpull",
            help="The task queue: the commands of oxpull-async.",
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def oxpull(arguments: tuple[str, ...]) -> None:
            run_for(self._ox, arguments)

    @asynccontextmanager
    async def _lifespan(self, app: Litestar) -> AsyncIterator[None]:
        async with self._ox.running(worker=self._worker):
            yield

    def _queue(self) -> Oxpull:
        return self._ox
