"""Procedures that a test can stop in their tracks, inside the thread of a SQLite connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._statements import Statement

T = TypeVar("T")

ENDLESS = Statement(
    "endless", "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
)


class Gate:
    """Where a procedure waits, in its thread, until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(10)


def gated(procedure: Procedure[T], gate: Gate, *, before: int) -> Procedure[T]:
    """The procedure, which waits at the gate before its step of this number, or before its end."""
    answer: T
    step, number = next(procedure), 0
    try:
        while True:
            if number == before:
                gate.wait()
            step, number = procedure.send((yield step)), number + 1
    except StopIteration as stop:
        answer = stop.value
    if number + 1 == before:
        gate.wait()
    return answer


def endless() -> Procedure[None]:
    """A statement that ends only when it's stopped."""
    yield ENDLESS()


def waiting(gate: Gate) -> Procedure[None]:
    """Keeps its turn without a statement."""
    gate.wait()
    yield from ()


def nothing(answer: T) -> Procedure[T]:
    """A procedure without a statement."""
    yield from ()
    return answer


def is_free(path: str) -> bool:
    """Whether somebody else gets the file's write lock within 100 ms."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0.1)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


@contextmanager
def kept(path: str) -> Iterator[None]:
    """Somebody else has the file's write lock."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
