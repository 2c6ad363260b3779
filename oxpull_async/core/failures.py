"""Error records: what a row keeps of an attempt that failed.

A record has exactly two keys, and readers of the row index both.
"""

from __future__ import annotations

import traceback
from datetime import datetime
from typing import TypeAlias

ErrorRecord: TypeAlias = dict[str, str]
"""``{"exception_class_path": …, "traceback": …}``"""

MAX_TRACEBACK_BYTES = 16_384
TRACEBACK_HEAD_BYTES = 4_096

# Django processes import the class that a record names, so these two are spelled as they know them.
TASK_TIMEOUT_PATH = "django_ox.exceptions.TaskTimeout"
TASK_ABANDONED_PATH = "django_ox.exceptions.TaskAbandoned"
_STORED_PATHS = {
    "oxpull_async.exceptions.TaskTimeout": TASK_TIMEOUT_PATH,
    "oxpull_async.exceptions.TaskAbandoned": TASK_ABANDONED_PATH,
}


def error_record(error: BaseException) -> ErrorRecord:
    """The record of an exception with its whole chain, cut in the middle where it's too long.

    Never raises, whatever the exception's own methods do.
    """
    return _record(class_path(type(error)), _format(error))


def abandoned_record(holder: str | None, lease_expired_at: datetime | None = None) -> ErrorRecord:
    """The record of a row whose holder let its last lease run out."""
    since = "" if lease_expired_at is None else f" at {lease_expired_at.isoformat(sep=' ')}"
    return _record(
        TASK_ABANDONED_PATH,
        f"The lease of worker {holder or '(unknown)'} ran out{since} during the last attempt; "
        "whether the task's work was done is not known.",
    )


def class_path(error_type: type[BaseException]) -> str:
    """The dotted path under which a class of exceptions is stored."""
    path = f"{error_type.__module__}.{error_type.__qualname__}"
    return _STORED_PATHS.get(path, path)


def _record(path: str, text: str) -> ErrorRecord:
    return {"exception_class_path": _storable(path), "traceback": cap_traceback(_storable(text))}


def _format(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as problem:
        name = type(problem).__qualname__
        return f"{type(error).__qualname__}, whose traceback couldn't be formatted ({name})\n"


def _storable(text: str) -> str:
    # PostgreSQL refuses NUL, and every engine but SQLite refuses lone surrogates.
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def cap_traceback(text: str) -> str:
    """The text in at most 16,384 bytes of UTF-8: its head, a line that counts what is gone, its tail."""
    data = text.encode("utf-8")
    if len(data) <= MAX_TRACEBACK_BYTES:
        return text
    head = data[:TRACEBACK_HEAD_BYTES].decode("utf-8", "ignore")
    start = _tail_start(data, len(head.encode("utf-8")))
    tail = data[start:].decode("utf-8", "ignore")
    dropped = len(data) - len(head.encode("utf-8")) - len(tail.encode("utf-8"))
    return f"{head}{_marker(dropped)}{tail}"


def _tail_start(data: bytes, head_size: int) -> int:
    # A longer marker leaves less room for the tail, and so drops more: grow until it fits.
    start = head_size
    while True:
        room = MAX_TRACEBACK_BYTES - head_size - len(_marker(start - head_size))
        if len(data) - start <= room:
            return start
        start = len(data) - room


def _marker(dropped: int) -> str:
    return f"\n[... {dropped} bytes left out here ...]\n"
