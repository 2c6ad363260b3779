"""What tasks find in their context's ``state``: opened before a worker's first task, closed after its last."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from oxpull_async._shield import shielded
from oxpull_async.exceptions import InvalidTask, NotOpen

_CLOSE_SECONDS: Final = 10.0


class TaskState:
    """One for all workers of an ``Oxpull``, whose last one closes it.

    It lives in an asyncio task of its own, for it may hold cancel scopes open,
    and workers may begin and end anywhere.
    """

    def __init__(self) -> None:
        self._factory: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._users = 0
        self._keeper: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Any] | None = None
        self._over = asyncio.Event()

    def provide(self, factory: Callable[[], Any]) -> None:
        """Set what makes it. Raises: InvalidTask if that is set already, or is something else."""
        if self._factory is not None:
            raise InvalidTask("the state of tasks has been provided already; provide one object that holds everything")
        if inspect.isasyncgenfunction(factory):
            factory = asynccontextmanager(factory)
        elif not callable(factory) or inspect.iscoroutinefunction(factory):
            raise InvalidTask(f"{factory!r} must be an async generator function, or return an async context manager")
        self._factory = factory

    @property
    def value(self) -> Any:
        """None where nothing is provided. Raises: NotOpen where no worker runs."""
        if self._factory is None:
            return None
        if self._opened is None or not self._opened.done():
            raise NotOpen("the state of tasks is open only while a worker runs")
        return self._opened.result()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Open for as long as the block lasts, at least. Raises: what its opening raises."""
        if self._factory is None:
            yield
            return
        self._users += 1
        try:
            if self._opened is None:
                self._open(self._factory)
            assert self._opened is not None
            await asyncio.shield(self._opened)
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._close()

    def _open(self, factory: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        loop = asyncio.get_running_loop()
        self._opened, self._over = loop.create_future(), asyncio.Event()
        keeping = self._keep(factory, self._opened, self._over)
        self._keeper = loop.create_task(keeping, name="oxpull_async task state")

    async def _close(self) -> None:
        keeper, self._keeper, opened, self._opened = self._keeper, None, self._opened, None
        self._over.set()
        if opened is not None and not opened.done() and keeper is not None:
            keeper.cancel()  # nobody waits for it any more
        if keeper is not None:
            await shielded(_end_of(keeper), within=_CLOSE_SECONDS)

    async def _keep(
        self,
        factory: Callable[[], AbstractAsyncContextManager[Any]],
        opened: asyncio.Future[Any],
        over: asyncio.Event,
    ) -> None:
        try:
            async with factory() as value:
                opened.set_result(value)
                await over.wait()
        except BaseException as error:
            if opened.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                opened.cancel()
                return
            opened.set_exception(error)


async def _end_of(keeper: asyncio.Task[None]) -> None:
    await keeper
