"""PostgreSQL: a schema, found through ``search_path``. Its maker holds an advisory lock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from oxpull_async._shield import shielded
from oxpull_async.benchmark.places import MARK, NAME, REMOVAL_SECONDS, Place, Tell, new_name, refuse_unusable
from oxpull_async.drivers.postgres._connecting import connect
from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, classify
from oxpull_async.exceptions import OxpullError, StoreError, WrongDatabase
from oxpull_async.settings import Settings

_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
_MARKED: Final = (
    "SELECT nspname FROM pg_namespace WHERE nspname ~ ('^' || $1 || '$') AND obj_description(oid, 'pg_namespace') = $2"
)
_FORBIDDEN: Final = "42501"
_READ_ONLY: Final = "25006"


@asynccontextmanager
async def place_in(url: str, settings: Settings, tell: Tell) -> AsyncIterator[Place]:
    """A schema of the user's database."""
    await refuse_unusable(url, settings)
    name = new_name()
    async with _session(url, settings) as keeper:
        await _refuse_pooler(keeper)
        await _remove_left_overs(keeper, tell)
        await keeper.fetchval(_LOCK, name)
        try:
            await _make(keeper, name)
            yield Place(f"the schema {name}", f"{url}{'&' if '?' in url else '?'}search_path={name}")
        finally:
            await shielded(_remove(url, settings, name, tell), within=REMOVAL_SECONDS)


@asynccontextmanager
async def _session(url: str, settings: Settings) -> AsyncIterator[Any]:
    """A connection of its own, whose errors are the library's."""
    connection = None
    try:
        connection = await connect(url, timeout=settings.connect_timeout, statement_cache_size=0)
        yield connection
    except DRIVER_ERRORS as error:
        raise classify(error) from error
    finally:
        if connection is not None:
            connection.terminate()


async def _refuse_pooler(keeper: Any) -> None:
    """A pooler gives its clients numbers of its own. It keeps neither ``search_path`` nor a session's locks."""
    if keeper.get_server_pid() != await keeper.fetchval("SELECT pg_backend_pid()"):
        raise WrongDatabase(
            "between here and PostgreSQL is a pooler, such as PgBouncer. It would lend a connection that isn't in the "
            "schema of the measurement, so nothing is measured through it: give the URL of PostgreSQL itself."
        )


async def _make(keeper: Any, name: str) -> None:
    try:
        async with keeper.transaction():
            await keeper.execute(f"CREATE SCHEMA {name}")
            await keeper.execute(f"COMMENT ON SCHEMA {name} IS '{MARK}'")
    except DRIVER_ERRORS as error:
        if getattr(error, "sqlstate", None) not in (_FORBIDDEN, _READ_ONLY):
            raise
        raise await _refusal(keeper, error) from error


async def _refusal(keeper: Any, error: Exception) -> StoreError:
    code = str(getattr(error, "sqlstate", None))
    if code == _READ_ONLY:
        return StoreError(f"{error}: give the URL of a server that may be written to, not of a replica", code=code)
    user, database = await keeper.fetchrow("SELECT quote_ident(current_user), quote_ident(current_database())")
    return StoreError(
        f"the user {user} may not make a schema in the database {database}, and nothing is measured among your own "
        f"tables. Grant it (GRANT CREATE ON DATABASE {database} TO {user}), or give a URL with a user who may. "
        f"The server says: {error}",
        code=code,
    )


async def _remove_left_overs(keeper: Any, tell: Tell) -> None:
    for (name,) in await keeper.fetch(_MARKED, NAME, MARK):
        if not await keeper.fetchval(_LOCK, name):
            tell(f"another run is under way, in the schema {name}: each slows the other down")
            continue
        try:
            await _drop(keeper, name)
            tell(f"removed the schema {name}, which a run that was killed had left behind")
        except DRIVER_ERRORS as error:
            tell(f"the schema {name} was left behind by a run that was killed, and can't be removed: {error}")
        finally:
            await keeper.fetchval(_UNLOCK, name)


async def _remove(url: str, settings: Settings, name: str, tell: Tell) -> None:
    """Over a new connection: the other one may be broken."""
    try:
        async with _session(url, settings) as connection:
            await _drop(connection, name)
    except OxpullError as error:
        tell(f"the schema {name} stays, for it can't be removed now: {error} The next run removes it.")


async def _drop(connection: Any, name: str) -> None:
    """Whoever was cut off may hold a table for a moment."""
    await connection.execute("SET lock_timeout = '10s'")
    await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
