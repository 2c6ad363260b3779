"""Who tells other processes that there is something to claim."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from oxpull_async.runtime.wakeups import Announcer
from oxpull_async.settings import make_settings
from tests.eventually import eventually


class Board:
    """A store on which words can be put, and nothing else."""

    capabilities = SimpleNamespace(notifications=True)

    def __init__(self) -> None:
        self.words: list[str] = []

    async def notify(self, word: str) -> None:
        self.words.append(word)


def test_one_announcer_serves_one_event_loop_after_another():
    board: Any = Board()
    announcer = Announcer(lambda: board, make_settings({}))
    complaints: list[dict[str, Any]] = []

    async def announce_twice() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        before = len(board.words)
        announcer.announce()
        await eventually(lambda: len(board.words) == before + 1)
        announcer.announce()
        await eventually(lambda: len(board.words) == before + 2)
        await announcer.drain()

    for _ in range(3):
        asyncio.run(announce_twice())

    assert complaints == []
    assert len(board.words) == 6


def test_a_loop_that_was_closed_amid_the_telling_silences_no_other():
    board: Any = Board()
    announcer = Announcer(lambda: board, make_settings({}))

    async def announce() -> None:
        announcer.announce()
        await eventually(lambda: bool(board.words))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(announce())
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    board.words.clear()

    asyncio.run(announce())

    assert board.words == [announcer.word]
