"""Heartbeat files: a sign of life that a probe can read without a database.

Only the time of a file's last change carries meaning, and only on the machine that wrote it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from oxpull_async.cli.target import UsageError
from oxpull_async.clock import system_time
from oxpull_async.telemetry import log

_BEAT_SECONDS: Final = 1.0


def touch(file: Path) -> None:
    """Say that we are alive. Raises: UsageError where the file can't be written."""
    try:
        # No link is followed, so that nobody who may write to the folder can have us touch a file of ours.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"the heartbeat file {file} can't be written: {error.strerror}") from error


async def keep_touching(file: Path, is_well: Callable[[], bool]) -> None:
    """Touch the file every second for as long as the event loop turns and all is well."""
    has_told = False
    while True:
        if is_well():
            try:
                touch(file)
            except UsageError as error:  # a full disk, say: no reason to stop the work
                if not has_told:
                    has_told = True
                    log(logging.WARNING, "heartbeat_file_failed", str(error), error=error)
        await anyio.sleep(_BEAT_SECONDS)


def age(file: Path) -> float | None:
    """How many seconds ago there was a sign of life; None without a regular file. Negative if it's of the future."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return system_time().timestamp() - found.st_mtime if stat.S_ISREG(found.st_mode) else None
