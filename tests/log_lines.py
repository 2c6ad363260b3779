"""What the library has logged."""

from __future__ import annotations

import pytest


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The `event` of every line that carries one, in order."""
    return [event for record in caplog.records if (event := getattr(record, "event", None))]
