"""The stores: one room per dialect, mirrors of one another."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from oxpull_async.drivers._joined.joining import session_factory
from oxpull_async.drivers._store import SqlStore
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.settings import Settings

__all__ = ["SqlStore", "open_store", "schema_script", "session_factory"]

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
    return SqlStore(_import_room(url).room(url, settings))


def schema_script(url: str, *, lean: bool = False) -> str:
    """The schema as SQL for the URL's dialect; connects to nothing.

    ``mariadb://`` stands for 10.7 or later, where ids are of the type ``uuid``.
    Raises: InvalidSettings as ``open_store`` does.
    """
    migrations = import_module(f"{_import_room(url).__name__}.migrations")
    uuid_type = {"uuid_type": "uuid"} if urlsplit(url).scheme == "mariadb" else {}
    script: str = migrations.sql(lean=lean, **uuid_type)
    return script


def _import_room(url: str) -> Any:
    scheme = urlsplit(url).scheme
    name = _ROOMS.get(scheme)
    if name is None:
        raise InvalidSettings(
            f"database URL with scheme {scheme!r}: use sqlite:///relative.db, sqlite:////absolute.db, "
            "postgresql://user@host/name or mysql://user@host/name"
        )
    try:
        return import_module(f"oxpull_async.drivers.{name}")
    except ModuleNotFoundError as error:
        if error.name != _EXTRAS[name]:
            raise
        raise InvalidSettings(
            f"a {scheme}:// database needs the driver {_EXTRAS[name]}: pip install 'oxpull-async[{name}]'"
        ) from error
