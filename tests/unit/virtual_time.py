"""An event loop whose time passes only where nothing is left to do: hours in milliseconds, however slow the machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_virtual_time(errand: Coroutine[Any, Any, T]) -> T:
    """What it returns. Its time, ``asyncio.get_running_loop().time()``, begins at 1000."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(errand)


class VirtualTime:
    """Stands for the module ``time`` in modules that ask for the monotonic clock."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._hurried = _Hurried()
        super().__init__(self._hurried)

    def time(self) -> float:
        return self._hurried.now


class _Hurried(selectors.BaseSelector):
    """Instead of waiting it moves the time on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        assert found or timeout is not None, "nothing will ever happen"
        if not found and timeout is not None:
            self.now += max(timeout, 0.0)
        return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()
