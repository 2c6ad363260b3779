"""The one place that knows how to run a function inside an aiosqlite connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import aiosqlite

T = TypeVar("T")


async def in_thread(connection: aiosqlite.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    """What the function returns. A cancel leaves it running.

    aiosqlite runs single statements in its thread, a hop each, and has no
    public way to run a function there: ``_execute`` has done it in every
    version from 0.20 to 0.22. Raises: ValueError where the connection is closed.
    """
    answer: T = await connection._execute(function, connection._conn)  # type: ignore[no-untyped-call]
    return answer
