"""SQLite: a folder beside the user's file, on the same disk. Its maker holds the write lock of a file in it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from oxpull_async.benchmark.places import NAME, Place, Tell, new_name
from oxpull_async.drivers.sqlite.pool import database_path
from oxpull_async.exceptions import InvalidSettings, StoreError
from oxpull_async.settings import Settings

_OWNER: Final = "owner.db"
_MEMORY: Final = ":memory:"


@asynccontextmanager
async def place_in(url: str, settings: Settings, tell: Tell) -> AsyncIterator[Place]:
    """A folder beside the file, which needn't exist and isn't opened."""
    beside = _folder_of(url)
    _remove_left_overs(beside, tell)
    place = beside / new_name()
    _make(place)
    try:
        with closing(_hold(place)):
            yield Place(f"the folder {place}", f"sqlite:///{quote(str(place / 'bench.db'))}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if place.exists():
            tell(f"the folder {place} can't be removed now; the next run removes it")


def _folder_of(url: str) -> Path:
    path = database_path(url)
    if path == _MEMORY:
        raise InvalidSettings("a database in memory is nowhere to measure in: give the URL of a file")
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InvalidSettings(f"nothing can be measured beside the SQLite file {path}: there is no folder {folder}")
    return folder


def _make(place: Path) -> None:
    try:
        place.mkdir()
    except OSError as error:
        raise StoreError(
            f"no folder can be made in {place.parent}, where the measurement's own file would be: {error.strerror}. "
            "Run this as a user who may write there."
        ) from error


def _hold(place: Path) -> sqlite3.Connection:
    """Raises: sqlite3.OperationalError where somebody else has it."""
    connection = sqlite3.connect(place / _OWNER, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _remove_left_overs(beside: Path, tell: Tell) -> None:
    """A folder whose maker hasn't come as far as to hold anything stays: it may be about to."""
    for place in sorted(path for path in beside.iterdir() if re.fullmatch(NAME, path.name)):
        if not (place / _OWNER).is_file():
            tell(f"there is a folder {place}: another run begins, or one was killed; remove it in that case")
            continue
        try:
            _hold(place).close()
        except sqlite3.Error:
            tell(f"another run is under way, in the folder {place}: each slows the other down")
            continue
        shutil.rmtree(place, ignore_errors=True)
        tell(f"removed the folder {place}, which a run that was killed had left behind")
