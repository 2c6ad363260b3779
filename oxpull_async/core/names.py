"""Checks of a task's path and options, the same for every engine and before any SQL."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.storable import text_complaint
from oxpull_async.exceptions import InvalidArguments, InvalidTask

MAX_TASK_PATH_LENGTH = 255
MAX_NAME_LENGTH = 128
MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_ATTEMPTS_CEILING = 32_767
MAX_TIMEOUT_SECONDS = 31_557_600_000
"""A thousand years of 365.25 days."""

_OUTERMOST_YEARS = (1, 9999)
"""In which some driver takes an instant for an infinity, or can't read it in another time zone."""

_SHOWN = 80


def check_task_path(value: object) -> str:
    """A path of 1 to 255 characters. Raises: InvalidTask."""
    return _check_name("task path", value, MAX_TASK_PATH_LENGTH)


def check_queue_name(value: object) -> str:
    """A name of 1 to 128 characters. Raises: InvalidTask."""
    return _check_name("queue_name", value, MAX_NAME_LENGTH)


def check_backend_name(value: object) -> str:
    """A name of 1 to 128 characters. Raises: InvalidTask."""
    return _check_name("backend_name", value, MAX_NAME_LENGTH)


def check_priority(value: object) -> int:
    """A whole number from -100 to 100, higher runs first; 5.0 counts as 5. Raises: InvalidTask."""
    whole = _whole(value)
    if whole is None or not MIN_PRIORITY <= whole <= MAX_PRIORITY:
        raise InvalidTask(f"priority must be a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}, not {_shown(value)}")
    return whole


def check_max_attempts(value: object) -> int:
    """An int from 1 to 32767. Raises: InvalidTask."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ATTEMPTS_CEILING:
        raise InvalidTask(
            f"max_attempts must be an int from 1 to {MAX_ATTEMPTS_CEILING}, not {_shown(value)}; "
            "1 means that a failed attempt isn't retried"
        )
    return int(value)


def check_timeout(value: Duration) -> float:
    """Seconds, more than none and at most a thousand years. Raises: InvalidTask."""
    try:
        number = seconds(value, "timeout")
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{error}; for no timeout leave it out") from error
    if not 0 < number <= MAX_TIMEOUT_SECONDS:
        raise InvalidTask(
            f"timeout must be more than 0 and at most {MAX_TIMEOUT_SECONDS} seconds, not {number:g}; "
            "for no timeout leave it out"
        )
    return number


def check_wait(value: Any) -> float:
    """Seconds. Raises: InvalidTask."""
    try:
        return seconds(value, "wait")
    except (TypeError, ValueError) as error:
        raise InvalidTask(str(error)) from error


def check_backoff(value: Any) -> Any:
    """Seconds, or a function as it is. Raises: InvalidTask."""
    if value is None or callable(value):
        return value
    try:
        return seconds(value, "backoff")
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{error}; backoff takes seconds, a timedelta or a function") from error


def check_run_after(value: datetime | Duration, now: datetime) -> datetime:
    """The instant meant by an aware datetime or by a duration from ``now``, in UTC.

    Raises: InvalidArguments for a naive datetime, or what isn't an instant at all.
    """
    try:
        instant = value if isinstance(value, datetime) else now + timedelta(seconds=seconds(value, "run_after"))
        if instant.utcoffset() is not None:
            instant = instant.astimezone(UTC)
            if instant.year in _OUTERMOST_YEARS:
                raise OverflowError
            return instant
    except OverflowError as error:
        raise InvalidArguments(f"run_after is {_shown(value)}, which leaves the years 2 to 9998") from error
    except (TypeError, ValueError) as error:
        raise InvalidArguments(f"{error}; run_after takes an aware datetime or a duration") from error
    raise InvalidArguments(
        f"run_after is {instant!r}, which has no time zone; "
        "give an aware datetime, such as datetime.now(timezone.utc), or a duration"
    )


def _check_name(what: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidTask(f"{what} must be a str, not {_shown(value)}")
    if not value:
        raise InvalidTask(f"{what} must not be empty")
    if len(value) > longest:
        raise InvalidTask(
            f"{what} is {_shown(value)} with {len(value)} characters; at most {longest} can be stored: shorten it"
        )
    if complaint := text_complaint(value):
        raise InvalidTask(f"{what} is {_shown(value)}: {complaint}; leave it out")
    return str(value)


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    return int(value) if isinstance(value, int) else None


def _shown(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:
        return f"a value of type {type(value).__qualname__}"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'lease'?`` where one of the known names is near, else nothing."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
