"""What the library has logged."""

from __future__ import annotations

import logging

import pytest


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The `event` of every line that carries one, in order."""
    return [event for record in caplog.records if (event := getattr(record, "event", None))]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The same of warnings and errors alone."""
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [event for record in lines if (event := getattr(record, "event", None))]
