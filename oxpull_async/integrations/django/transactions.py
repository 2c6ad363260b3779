"""``aatomic``: Django's ``atomic``, for coroutines."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any

from django.db import transaction

from oxpull_async.integrations.django._thread import in_djangos_thread


def aatomic(
    using: str | None = None, savepoint: bool = True, durable: bool = False
) -> AbstractAsyncContextManager[None]:
    """``async with aatomic():`` opens what ``with transaction.atomic():`` opens, in the request's thread.

    The async methods of the ORM and ``ox.bind(DjangoConnection())`` take part
    in it. A cancel rolls it back before it goes on.

    All coroutines of a request share that thread and its connection: what
    another one of them writes while the block is open becomes part of it, and
    two blocks may not overlap. So don't ``gather`` inside of it; outside of
    requests, where all coroutines of the process share one thread, put
    asgiref's ``ThreadSensitiveContext`` around each job.
    """
    return _AsyncAtomic(transaction.atomic(using, savepoint, durable))


class _AsyncAtomic:
    def __init__(self, atomic: Any) -> None:
        self._atomic = atomic
        self._is_open = False

    async def __aenter__(self) -> None:
        try:
            await in_djangos_thread(self._enter)
        except asyncio.CancelledError:
            # The block that was about to begin would never end.
            with suppress(asyncio.CancelledError):
                await in_djangos_thread(lambda: self._exit(asyncio.CancelledError, asyncio.CancelledError(), None))
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_djangos_thread(lambda: self._exit(kind, error, trace))

    def _enter(self) -> None:
        self._atomic.__enter__()
        self._is_open = True

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_open:
            self._is_open = False
            self._atomic.__exit__(kind, error, trace)
