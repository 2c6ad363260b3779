"""Which values every engine can store as JSON, and where in a value is something that none can.

What one engine refuses is refused for all, before SQL. By engine: NaN and the infinities (all),
NUL (PostgreSQL), lone surrogates (all but SQLite), nesting of more than 31 levels (MariaDB;
MySQL's bound is 100, SQLite's 1,000 or 2,000), integers beyond the range of a floating-point number
(MySQL).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

MAX_NESTING = 31
"""Levels of lists and dicts, the outermost included."""
MAX_INTEGER_DIGITS = 308
"""All numbers of so many digits are in the range of a floating-point number."""

_TOO_LONG: int = 10**MAX_INTEGER_DIGITS
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Unstorable:
    """What can't be stored, and its place inside the value, such as ``["a"][3]``."""

    complaint: str
    path: str = ""
    wrong_type: bool = False


def find_unstorable(value: object, levels: int = MAX_NESTING) -> Unstorable | None:
    """The first thing in the value that can't be stored, or None. ``levels`` may be nested at most."""
    if isinstance(value, Mapping):
        return _find_in_mapping(value, levels)
    if isinstance(value, bytes | str | int | float) or value is None:
        return _refused(_scalar_complaint(value))
    if isinstance(value, Sequence):
        return _find_in_sequence(value, levels)
    return Unstorable(
        f"a value of type {_type_name(value)} can't be stored as JSON; "
        "use None, bool, int, float, str, or lists and dicts of them (a task with pydantic=True takes more)",
        wrong_type=True,
    )


def text_complaint(text: str) -> str | None:
    """What keeps the text from being stored, or None."""
    if "\0" in text:
        return "a NUL character can't be stored"
    if text.isascii():
        return None
    try:
        # Two halves of a pair in a row are stored, and read back as the character they mean.
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return "a lone surrogate (half of a character) can't be stored"
    return None


def _find_in_mapping(value: Mapping[object, object], levels: int) -> Unstorable | None:
    if not levels:
        return _too_deep()
    for key, item in value.items():
        found = _find_in_key(key) or find_unstorable(item, levels - 1)
        if found:
            return replace(found, path=f"[{_shown_key(key)}]{found.path}")
    return None


def _find_in_sequence(value: Sequence[object], levels: int) -> Unstorable | None:
    if not levels:
        return _too_deep()
    for index, item in enumerate(value):
        if found := find_unstorable(item, levels - 1):
            return replace(found, path=f"[{index}]{found.path}")
    return None


def _find_in_key(key: object) -> Unstorable | None:
    if isinstance(key, float):
        return None  # NaN too becomes text as a key
    if isinstance(key, bytes | str | int) or key is None:
        complaint = _scalar_complaint(key)
        return _refused(complaint and f"in this key {complaint}")
    return Unstorable(
        f"a key of type {_type_name(key)} can't be stored as JSON; keys are str, int, float, bool or None",
        wrong_type=True,
    )


def _scalar_complaint(value: bytes | str | float | None) -> str | None:
    if isinstance(value, str):
        return text_complaint(value)
    if isinstance(value, bytes):
        try:
            return text_complaint(value.decode("utf-8"))
        except UnicodeDecodeError:
            return "bytes are stored as text, and these aren't UTF-8"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{float(value)} isn't JSON, and can't be stored"
    if isinstance(value, int) and not -_TOO_LONG < value < _TOO_LONG:
        return f"an integer of more than {MAX_INTEGER_DIGITS} digits can't be stored"
    return None


def _refused(complaint: str | None) -> Unstorable | None:
    return Unstorable(complaint) if complaint else None


def _too_deep() -> Unstorable:
    return Unstorable(f"it's nested more than {MAX_NESTING} levels deep, or contains itself")


def _shown_key(key: object) -> str:
    if isinstance(key, str):
        shown = json.dumps(key)
    elif isinstance(key, bytes | float) or key is None or (isinstance(key, int) and abs(key) < _TOO_LONG):
        shown = repr(key)
    else:
        shown = type(key).__qualname__
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
