"""What the library has logged."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Iterator
from logging.handlers import QueueHandler
from typing import Any

import pytest


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The `event` of every line that carries one, in order."""
    return [event for record in caplog.records if (event := getattr(record, "event", None))]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The same of warnings and errors alone."""
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [event for record in lines if (event := getattr(record, "event", None))]


@contextlib.contextmanager
def logging_restored() -> Iterator[None]:
    """A queue that an application sets up at the root logger, and its thread that writes, end with the block."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in [handler for handler in root.handlers if isinstance(handler, QueueHandler)]:
            if handler not in before:
                root.removeHandler(handler)
                listener: Any = getattr(handler, "listener", None)
                if listener is not None:
                    atexit.unregister(listener.stop)
                    listener.stop()
