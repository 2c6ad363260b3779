"""Structured log lines: every line carries a stable ``event`` and plain fields, never a payload."""

from __future__ import annotations

import logging
from typing import Any

logger: logging.Logger = logging.getLogger("oxpull_async")


def log(level: int, event: str, message: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Write one line. The fields are attributes of the record, so that a formatter can use them."""
    if logger.isEnabledFor(level):
        logger.log(level, message, exc_info=error, extra={"event": event, **fields}, stacklevel=2)
