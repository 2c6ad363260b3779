"""Periods as people write them: ``7d``, ``12h``, ``30m``, ``45s``, ``90``."""

from __future__ import annotations

from datetime import timedelta

from oxpull_async.cli.target import UsageError
from oxpull_async.core import durations


def parse_period(text: str) -> timedelta:
    """The period; a number alone counts seconds. Raises: UsageError."""
    try:
        return durations.parse_period(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def short_period(seconds: float) -> str:
    """The period in its two largest units: ``2d 3h``, ``5m 4s``, ``12s``."""
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number or parts:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"
