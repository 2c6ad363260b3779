"""Turn the URL of a test database into Django's own description of it, and lead a running Django there."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgresql": "django.db.backends.postgresql",
    "postgres": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}


def database_settings(url: str) -> dict[str, Any]:
    """An entry of ``DATABASES`` for *url*, which is spelled as for ``Oxpull``."""
    parts = urlsplit(url)
    engine = ENGINES[parts.scheme]
    if parts.scheme == "sqlite":
        # A process that claims beside another one waits for the file instead of failing.
        return {"ENGINE": engine, "NAME": unquote(parts.path[1:]), "OPTIONS": {"timeout": 20}}
    if parts.scheme in ("mysql", "mariadb"):
        _let_pymysql_pass_for_mysqlclient()
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": engine,
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        # PostgreSQL URLs name a socket's folder in the query, since a path can't stand in for a host.
        "HOST": parts.hostname or query.get("host", ""),
        "PORT": str(parts.port or query.get("port", "")),
        "CONN_MAX_AGE": 600,
    }


def lead_django_to(url: str, **options: Any) -> None:
    """Have ``default`` be the database at *url* from now on, in threads that haven't used it yet and in this one."""
    from django.db import connections  # here, since the settings import this module

    entry = database_settings(url)
    entry["OPTIONS"] = entry.get("OPTIONS", {}) | options
    configured = connections.configure_settings({"default": entry})["default"]
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:  # in an event loop's thread it never is, and must not be closed
            connection.close()
        del connections[connection.alias]
    connections.settings["default"].clear()
    connections.settings["default"].update(configured)


def _let_pymysql_pass_for_mysqlclient() -> None:
    """Django's backend imports MySQLdb, a C extension that needs a compiler; PyMySQL answers to the name."""
    pymysql.install_as_MySQLdb()
