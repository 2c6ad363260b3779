"""Finds out what a caller has handed to ``bind``: without a server, and without importing a driver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from oxpull_async.drivers._joined.session import JoinedSession


class _Kind(NamedTuple):
    """A class that can be bound, by name: if its module was never imported, no object of it exists."""

    module: str
    names: tuple[str, ...]
    session: str


_KINDS = (
    _Kind("asyncpg.connection", ("Connection",), "postgres.session:AsyncpgSession"),
    _Kind("asyncpg.pool", ("PoolConnectionProxy",), "postgres.session:AsyncpgSession"),
    _Kind("aiosqlite", ("Connection",), "sqlite.session:AiosqliteSession"),
    _Kind("asyncmy.connection", ("Connection",), "mysql.session:AsyncmySession"),
    _Kind(
        "sqlalchemy.ext.asyncio", ("AsyncConnection", "AsyncSession"), "_joined.sqlalchemy_session:SqlalchemySession"
    ),
)


def session_factory(connection: object) -> Callable[[], JoinedSession]:
    """How to make the session for one call on this connection. Raises: TypeError for anything else."""
    own = getattr(connection, "oxpull_session", None)
    if callable(own):
        factory: Callable[[], JoinedSession] = own
        return factory
    for kind in _KINDS:
        module = sys.modules.get(kind.module)
        if module is not None and isinstance(connection, tuple(getattr(module, name) for name in kind.names)):
            return _maker(kind.session, connection)
    raise TypeError(
        f"ox.bind takes a connection or a session of asyncpg, aiosqlite, asyncmy or SQLAlchemy's asyncio part, not "
        f"{type(connection).__module__}.{type(connection).__qualname__}{_hint(connection)}"
    )


def _maker(name: str, connection: object) -> Callable[[], JoinedSession]:
    module, _, attribute = name.partition(":")
    made: Any = getattr(import_module(f"oxpull_async.drivers.{module}"), attribute)
    return lambda: made(connection)


def _hint(connection: object) -> str:
    kind = type(connection)
    if kind.__name__ in ("Pool", "AsyncEngine", "Engine", "async_sessionmaker", "sessionmaker"):
        return " (a pool or an engine has no transaction: bind what you got from it)"
    if kind.__module__.startswith("django."):
        return " (for Django's connection bind oxpull_async.integrations.django.DjangoConnection())"
    if kind.__module__.startswith("sqlalchemy."):
        return " (of SQLAlchemy's it takes AsyncSession and AsyncConnection)"
    return ""
