"""Periods as people write them: ``7d``, ``12h``, ``30m``, ``45s``, ``90``."""

from __future__ import annotations

import re
from datetime import timedelta

from oxpull_async.cli.target import UsageError

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "": "seconds"}
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)\s*([wdhms]?)", re.IGNORECASE)


def parse_period(text: str) -> timedelta:
    """The period; a number alone counts seconds. Raises: UsageError."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no period; write it as 7d, 12h, 30m or 45s")
    try:
        return timedelta(**{_UNITS[match[2].lower()]: float(match[1])})
    except OverflowError as error:
        raise UsageError(f"{text!r} is longer than can be counted") from error


def short_period(seconds: float) -> str:
    """The period in its two largest units: ``2d 3h``, ``5m 4s``, ``12s``."""
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number or parts:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"
