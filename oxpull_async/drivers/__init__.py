"""The stores: one room per dialect, mirrors of one another."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from oxpull_async.drivers._joined.joining import session_factory
from oxpull_async.drivers._store import SqlStore
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.settings import Settings

__all__ = ["SqlStore", "open_store", "session_factory"]

_ROOMS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_EXTRAS = {"postgres": "asyncpg", "sqlite": "aiosqlite", "mysql": "asyncmy"}


def open_store(url: str, settings: Settings) -> SqlStore:
    """The store for a database URL; connects to nothing yet.

    Raises: InvalidSettings for a URL that no room serves, or whose driver isn't installed.
    """
    scheme = urlsplit(url).scheme
    name = _ROOMS.get(scheme)
    if name is None:
        raise InvalidSettings(
            f"database URL with scheme {scheme!r}: use sqlite:///relative.db, sqlite:////absolute.db, "
            "postgresql://user@host/name or mysql://user@host/name"
        )
    try:
        module = import_module(f"oxpull_async.drivers.{name}")
    except ModuleNotFoundError as error:
        if error.name != _EXTRAS[name]:
            raise
        raise InvalidSettings(
            f"a {scheme}:// database needs the driver {_EXTRAS[name]}: pip install 'oxpull-async[{name}]'"
        ) from error
    return SqlStore(module.room(url, settings))
