"""Hints within a process that something has happened. Nobody depends on one: every reader also polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID


class SettleHints:
    """Wakes those who wait for a task of this process to be settled."""

    def __init__(self) -> None:
        self._waiting: dict[UUID, set[asyncio.Event]] = {}
        self._listeners: set[Callable[[Collection[UUID]], None]] = set()

    def settled(self, task_ids: Iterable[UUID]) -> None:
        """Tell that these rows have just been settled (or changed)."""
        ids = list(task_ids)
        for task_id in ids:
            for event in self._waiting.get(task_id, ()):
                event.set()
        for listener in self._listeners:
            listener(ids)

    @contextmanager
    def heard_by(self, listener: Callable[[Collection[UUID]], None]) -> Iterator[None]:
        """Call ``listener`` with the ids of each hint; it must be quick, and raise nothing."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    @contextmanager
    def subscribed(self, task_id: UUID) -> Iterator[asyncio.Event]:
        """An event that is set at each hint. Subscribe first, then read, or a hint falls in between."""
        event = asyncio.Event()
        events = self._waiting.setdefault(task_id, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._waiting.pop(task_id, None)


class CancelHints:
    """Tells the workers of this process that rows were cancelled: one may be at such a row."""

    def __init__(self) -> None:
        self._listeners: set[Callable[[Collection[UUID]], None]] = set()

    def cancelled(self, task_ids: Collection[UUID]) -> None:
        """These rows aren't to be run any more."""
        for listener in list(self._listeners):
            listener(task_ids)

    @contextmanager
    def heard_by(self, listener: Callable[[Collection[UUID]], None]) -> Iterator[None]:
        """Call ``listener`` with the ids of each hint; it must be quick, and raise nothing."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)


class ReadyHints:
    """Wakes idle workers when a row was enqueued: those of this process, and by ``announce`` all others."""

    def __init__(self, announce: Callable[[], None] = lambda: None) -> None:
        self._announce = announce
        self._events: set[asyncio.Event] = set()

    def enqueued(self) -> None:
        """Tell everybody that there may be something to claim."""
        self.wake()
        self._announce()

    def wake(self) -> None:
        """Tell only the workers of this process."""
        for event in self._events:
            event.set()

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Event]:
        """An event that is set at each hint; clear it before looking."""
        event = asyncio.Event()
        self._events.add(event)
        try:
            yield event
        finally:
            self._events.discard(event)
