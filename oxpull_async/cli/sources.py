"""Notices that source files have changed, by looking at them: good enough for a developer's project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SKIPPED: Final = {"__pycache__", "node_modules", "site-packages", "venv"}


class Sources:
    """The Python files below a folder; hidden folders and installed packages are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Whether a file was written, added or removed since the last call."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in _python_files(self._folder):
            try:
                found[path] = Path(path).stat().st_mtime_ns
            except OSError:  # it went away meanwhile
                continue
        return found


def _python_files(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        yield from (str(Path(place, name)) for name in files if name.endswith(".py"))
