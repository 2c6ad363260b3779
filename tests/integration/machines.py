"""What every state machine at a real database needs: an Oxpull, a witness, and an event loop that lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from oxpull_async import Oxpull
from oxpull_async.ports import Store
from tests.integration.competitor import Competitor
from tests.integration.shared_database import empty_tables

T = TypeVar("T")


class DatabaseMachine(RuleBasedStateMachine):
    """Begins with empty tables at ``url``; subclasses say what happens there."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._competitor = Competitor(self.url)
        empty_tables(self._competitor)
        self._ox = Oxpull(self.url)
        self._store = self._run(self._open())

    def teardown(self) -> None:
        self._run(self._ox.close())
        self._competitor.close()
        self._loop.close()

    async def _open(self) -> Store:
        await self._ox.open()
        return self._ox.store

    def _run(self, work: Awaitable[T]) -> T:
        async def main() -> T:
            return await work

        return self._loop.run(main())
