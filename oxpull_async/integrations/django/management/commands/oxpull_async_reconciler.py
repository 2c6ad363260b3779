"""``manage.py oxpull_async_reconciler``: completes batches, and does nothing else."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from oxpull_async.integrations.django.project import project_oxpull

if TYPE_CHECKING:

    class BaseCommand:
        """Django's, which is untyped."""
else:
    from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """A process for projects whose web servers and workers run no reconciler of this library."""

    help = "Complete batches until told to stop. `oxpull_async worker` and an ASGI server with ox.lifespan do so too."

    def handle(self, *arguments: str, **options: object) -> None:
        """Called by Django."""
        asyncio.run(_reconcile())


async def _reconcile() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with project_oxpull().running():
        await stop.wait()
