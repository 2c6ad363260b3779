"""Which ``Oxpull`` a command works on: one of the user's own code, or one over a database URL alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from oxpull_async.app import Oxpull

APP_VARIABLE = "OXPULL_APP"
DATABASE_VARIABLE = "OXPULL_DATABASE_URL"
_DEFAULT_ATTRIBUTE = "ox"
_NESTED = "cannot be called from a running event loop"  # Python's own words
_hosted: ContextVar[Oxpull | None] = ContextVar("oxpull_async_hosted", default=None)


class UsageError(Exception):
    """The command can't be carried out as it was given."""


@dataclass(frozen=True)
class Target:
    """Where the queue is.

    Parameters
    ----------
    app
        The Oxpull to work on, as ``module:ox``. Without it: ``--database``, then $OXPULL_APP.
    database
        The URL of the database. Without it and without an app: $OXPULL_DATABASE_URL.
    """

    app: str | None = None
    database: str | None = None

    def find(self) -> Oxpull:
        """The Oxpull meant. Raises: UsageError."""
        if self.app is not None and self.database is not None:
            raise UsageError("--app and --database are two answers to one question; give one of them")
        if self.database is not None:
            return Oxpull(self.database)
        if self.app is None and (ox := _hosted.get()) is not None:
            return ox
        if reference := self.app or os.environ.get(APP_VARIABLE):
            return load_app(reference)
        if DATABASE_VARIABLE in os.environ:
            return Oxpull.from_env()
        raise UsageError(f"which queue? Give --app module:ox or --database URL, or set {APP_VARIABLE}")


@contextmanager
def hosted(ox: Oxpull) -> Iterator[None]:
    """While the block lasts, commands that are told nothing else work on this one."""
    token = _hosted.set(ox)
    try:
        yield
    finally:
        _hosted.reset(token)


def find_app(reference: str | None) -> Oxpull:
    """The Oxpull whose tasks are to run. Raises: UsageError."""
    if reference is None and (ox := _hosted.get()) is not None:
        return ox
    return load_app(reference_to(reference))


def reference_to(app: str | None) -> str:
    """The ``module:ox`` by which another process finds it. Raises: UsageError."""
    reference = app or os.environ.get(APP_VARIABLE)
    if not reference:
        raise UsageError(f"whose tasks? Give module:ox, or set {APP_VARIABLE}")
    return reference


def load_app(reference: str) -> Oxpull:
    """The Oxpull that ``module:ox`` names; the working directory comes first. Raises: UsageError."""
    module_name, _, attribute = reference.partition(":")
    attribute = attribute or _DEFAULT_ATTRIBUTE
    _prefer_working_directory()
    try:
        found = attrgetter(attribute)(_module(module_name))
    except AttributeError as error:
        raise UsageError(f"the module {module_name} has no {attribute}; name its Oxpull as module:name") from error
    if not isinstance(found, Oxpull):
        raise UsageError(f"{reference} is {type(found).__name__!r}, not an Oxpull")
    return found


def _prefer_working_directory() -> None:
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)


def _module(name: str) -> object:
    if not name or name.startswith("."):
        raise UsageError(f"{name!r} is no module; name the Oxpull as module:ox")
    try:
        return import_module(name)
    except RuntimeError as error:
        if _NESTED not in str(error):
            raise
        raise UsageError(
            f"the module {name} starts an event loop of its own when it's imported; "
            'put asyncio.run(…) beneath if __name__ == "__main__":'
        ) from error
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # a module that theirs imports
        if name.endswith(".py"):
            raise UsageError(f"{name} is a file; name the module, without .py: {name[:-3]}:ox") from error
        raise UsageError(f"there is no module {name!r} in {Path.cwd()} or among the installed ones") from error
