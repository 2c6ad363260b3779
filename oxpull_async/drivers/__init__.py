"""The stores: one room per dialect, mirrors of one another."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oxpull_async.drivers._addresses import check_server, check_slashes, url_parts
from oxpull_async.drivers._joined.joining import session_factory
from oxpull_async.drivers._migrations import SchemaStatement, SchemaStep, script
from oxpull_async.drivers._store import SqlStore
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.settings import Settings

__all__ = ["SqlStore", "engine_of", "open_store", "schema_script", "schema_statements", "session_factory"]

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


def engine_of(url: str) -> str:
    """The room that serves a database URL: postgres, sqlite or mysql. Raises: as ``open_store``."""
    name: str = _import_room(url).__name__
    return name.rpartition(".")[2]


def schema_script(url: str, *, lean: bool = False) -> str:
    """The schema as one SQL script; otherwise as ``schema_statements``."""
    return script(_schema(url, lean))


def schema_statements(url: str, *, lean: bool = False) -> list[SchemaStatement]:
    """The statements that make the schema in the URL's dialect, for a migration tool; connects to nothing.

    Those ``outside_transaction`` must not run within one. ``mariadb://``
    stands for 10.7 or later, where ids are of the type ``uuid``.
    Raises: InvalidSettings as ``open_store`` does.
    """
    return [statement for step in _schema(url, lean) for statement in step.statements]


def _schema(url: str, lean: bool) -> list[SchemaStep]:
    migrations = import_module(f"{_import_room(url).__name__}.migrations")
    uuid_type = {"uuid_type": "uuid"} if url_parts(url).scheme == "mariadb" else {}
    steps: list[SchemaStep] = migrations.schema(lean=lean, **uuid_type)
    return steps


def _import_room(url: str) -> Any:
    parts = url_parts(url)
    scheme = parts.scheme
    name = _ROOMS.get(scheme)
    plain, plus, _ = scheme.partition("+")
    if plus and plain in _ROOMS:
        raise InvalidSettings(
            f"database URL with scheme {scheme!r}: SQLAlchemy's URLs name a driver, ours don't, for each engine has "
            f"one. Write {plain}:// instead of {scheme}://"
        )
    if name is None:
        found = f"is no database of ours (scheme {scheme!r})" if scheme else "has no scheme"
        raise InvalidSettings(
            f"the database URL {found}: use sqlite:///relative.db, sqlite:////absolute.db, "
            "postgresql://user@host/name or mysql://user@host/name"
        )
    check_slashes(url, parts)
    if name != "sqlite":
        check_server(parts)
    try:
        return import_module(f"oxpull_async.drivers.{name}")
    except ModuleNotFoundError as error:
        if error.name != _EXTRAS[name]:
            raise
        driver = _EXTRAS[name]
        raise InvalidSettings(
            f"a {scheme}:// database needs the driver {driver}: pip install {driver}, or oxpull_async[{name}]"
        ) from error
