"""Work in the thread that Django uses here: its connections belong to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from asgiref.sync import sync_to_async

from oxpull_async._shield import shielded

T = TypeVar("T")

_CANCELLED_SECONDS = 10.0


def _nothing() -> None:
    pass


async def in_djangos_thread(work: Callable[[], T], *, call_off: Callable[[], None] = _nothing) -> T:
    """What ``work`` returns, run in the thread of the request (or of the sync code) around us.

    A cancel can't stop a thread: it calls ``call_off``, waits for the end of
    the work, for at most 10 s, and is raised then. Work that a cancel finds
    still waiting for the thread is run nevertheless.
    """
    # A task of its own, since a cancel of sync_to_async abandons the thread's work.
    hop = asyncio.ensure_future(sync_to_async(work)())
    try:
        await asyncio.wait([hop])
    except asyncio.CancelledError:
        call_off()
        with suppress(TimeoutError, asyncio.CancelledError):
            await shielded(asyncio.wait([hop]), within=_CANCELLED_SECONDS)
        hop.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
    answer: T = hop.result()
    return answer
