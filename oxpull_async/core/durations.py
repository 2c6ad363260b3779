"""Durations: seconds inside, numbers of seconds or ``timedelta`` outside."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "": "seconds"}
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)\s*([wdhms]?)", re.IGNORECASE)

Duration: TypeAlias = float | timedelta
"""Seconds (int or float), or a ``timedelta``."""


def seconds(value: Duration, name: str) -> float:
    """The duration in seconds; ``name`` is what an error calls it.

    Raises: TypeError for anything but a number or a timedelta (a bool is neither);
    ValueError for NaN, an infinity or less than nothing.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {type(value).__name__}")
    else:
        number = _as_float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number of seconds, not {number}")
    if number < 0:
        raise ValueError(f"{name} must not be negative: it is {number:g} seconds")
    return number


def parse_period(text: str) -> timedelta:
    """A period as people write it: ``7d``, ``12h``, ``30m``, ``45s``; a number alone counts seconds.

    Raises: ValueError.
    """
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no period; write it as 7d, 12h, 30m or 45s")
    try:
        return timedelta(**{_UNITS[match[2].lower()]: float(match[1])})
    except OverflowError as error:
        raise ValueError(f"{text!r} is longer than can be counted") from error


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
