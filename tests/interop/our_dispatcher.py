"""A process of ours that dispatches schedules when it's told what time it is, by the protocol of ``peers``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from oxpull_async import Oxpull
from oxpull_async.runtime.scheduler import Scheduler

PLAIN = "django_project.tasks.plain"


class Dispatcher:
    """What it obeys."""

    def __init__(self) -> None:
        self._ox = Oxpull()
        self._scheduler: Scheduler | None = None
        self._now = datetime.now(UTC)

    async def lead_to(self, url: str) -> None:
        await self._ox.close()
        self._ox = Oxpull(url)

    async def schedule(self, schedules: dict[str, dict[str, Any]], zone: str) -> None:
        self._ox = await Oxpull(self._ox.settings.database, schedule_timezone=zone).open()
        plain = self._ox.schedulable("work")(self._ox.reference(PLAIN))
        for name, options in schedules.items():
            timing = {key: value for key, value in options.items() if key != "task"}
            self._ox.schedule(plain, name=name, timezone=zone, **timing)
        self._scheduler = Scheduler(self._ox.schedules, clock=lambda: self._now)

    async def dispatch(self, at: str) -> int:
        assert self._scheduler is not None
        self._now = datetime.fromisoformat(at)
        return await self._scheduler.dispatch()

    async def end(self) -> None:
        await self._ox.close()


async def main() -> None:
    dispatcher = Dispatcher()
    lines = asyncio.StreamReader(limit=1_000_000)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        print(json.dumps(await _obey(dispatcher, line.decode())), flush=True)
    await dispatcher.end()


async def _obey(dispatcher: Dispatcher, line: str) -> dict[str, Any]:
    name, arguments = json.loads(line)
    order: Callable[..., Awaitable[Any]] = getattr(dispatcher, name)
    try:
        return {"value": await order(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    asyncio.run(main())
