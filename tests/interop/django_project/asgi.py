"""The project under a real ASGI server: its Oxpull opens with the server, and what is left at the end is noted."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

os.environ["DJANGO_SETTINGS_MODULE"] = "django_project.site_settings"

from django.core.asgi import get_asgi_application

application = get_asgi_application()

from django_project import views  # noqa: E402 - Django must be set up
from oxpull_async.integrations.django import from_django, with_lifespan  # noqa: E402

ox = from_django()
views.oxen.append(ox)


@asynccontextmanager
async def lifespan(app: object) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    async with ox.lifespan():
        _note("started")
        yield
    tasks = [repr(task) for task in asyncio.all_tasks() - before if "oxpull" in repr(task)]
    threads = [thread.name for thread in threading.enumerate() if "oxpull" in thread.name.lower()]
    _note("stopped", tasks=tasks, threads=threads, is_open=ox.is_open)


def _note(event: str, **facts: Any) -> None:
    with Path(os.environ["SERVICE_LOG"]).open("a") as file:
        file.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n")


application = with_lifespan(application, lifespan)
