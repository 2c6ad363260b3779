"""Runs a call and cancels it at its nth await."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

import anyio

from tests.scale import rounds

Moment = Literal["waiting", "answered"]
"""As it begins to wait, or as what it waits for has come."""
Kind = Literal["task", "scope"]
"""A plain cancel of the task, or an anyio scope, which cancels every further await too."""


def ways() -> list[tuple[Kind, Moment]]:
    """How a call is to be cancelled: in every way, or in a small run in two of them, chosen at random."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    moments: tuple[Moment, ...] = get_args(Moment)
    return random.sample(list(product(kinds, moments)), rounds(small=2, full=4))


class Cancelled:
    """What became of a call that was to be cancelled."""

    def __init__(self, awaits: int, struck: bool, value: Any) -> None:
        self.awaits = awaits
        self.struck = struck
        self.value = value


async def cancelled_at(call: Coroutine[Any, Any, Any], at: int, moment: Moment, kind: Kind) -> Cancelled:
    """Run the call in a task of its own and cancel it at its nth await; what else it raises is raised here."""
    counted = _Counted(call, at, moment)
    if kind == "task":
        task = asyncio.ensure_future(counted.run())
        counted.cancel = task.cancel
        try:
            value = await task
        except asyncio.CancelledError:
            if not counted.struck:  # somebody else's cancel
                raise
            value = None
    else:
        value = None
        with anyio.CancelScope() as scope:
            counted.cancel = scope.cancel
            value = await counted.run()
    return Cancelled(counted.awaits, counted.struck, value)


class _Counted:
    """Passes a coroutine's awaits on to the event loop, and counts them."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, moment: Moment) -> None:
        self._coroutine = coroutine
        self._at = at
        self._moment = moment
        self.awaits = 0
        self.struck = False
        self.cancel: Callable[[], Any] = lambda: None

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        resume: Callable[[], Any] = partial(inner.send, None)
        while True:
            try:
                waited = resume()
            except StopIteration as stop:
                return stop.value
            self.awaits += 1
            if self.awaits == self._at:
                self._strike(waited)
            try:
                yield waited
                resume = partial(inner.send, None)
            except BaseException as error:
                resume = partial(inner.throw, error)

    def _strike(self, waited: Any) -> None:
        self.struck = True
        if self._moment == "answered" and isinstance(waited, asyncio.Future):
            waited.add_done_callback(lambda _: self.cancel())
        else:
            self.cancel()
