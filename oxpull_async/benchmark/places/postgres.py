"""PostgreSQL: a schema, found through ``search_path``. Its maker holds an advisory lock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from oxpull_async._shield import shielded
from oxpull_async.benchmark.places import MARK, NAME, REMOVAL_SECONDS, Place, Tell, new_name, refuse_unusable
from oxpull_async.drivers.postgres._connecting import connect
from oxpull_async.drivers.postgres.errors import DRIVER_ERRORS, classify, is_gone
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
        await keeper.rows(_LOCK, name)
        try:
            await _make(keeper, name)
            yield Place(f"the schema {name}", f"{url}{'&' if '?' in url else '?'}search_path={name}")
        finally:
            await shielded(_remove(url, settings, name, tell), within=REMOVAL_SECONDS)


class _Session:
    """A connection of its own, whose errors are the library's."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    @property
    def thread(self) -> int:
        """The server's process, as the client was told when it connected."""
        return int(self._raw.get_server_pid())

    async def rows(self, text: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Run a statement; its rows, if it has any."""
        try:
            found: Sequence[Sequence[Any]] = await self._raw.fetch(text, *values)
        except DRIVER_ERRORS as error:
            raise classify(error, closed=is_gone(self._raw)) from error
        return found


@asynccontextmanager
async def _session(url: str, settings: Settings) -> AsyncIterator[_Session]:
    try:
        raw = await connect(url, timeout=settings.connect_timeout, statement_cache_size=0)
    except DRIVER_ERRORS as error:
        raise classify(error) from error
    try:
        yield _Session(raw)
    finally:
        raw.terminate()


async def _refuse_pooler(keeper: _Session) -> None:
    """A pooler gives its clients numbers of its own. It keeps neither ``search_path`` nor a session's locks."""
    ((pid,),) = await keeper.rows("SELECT pg_backend_pid()")
    if pid != keeper.thread:
        raise WrongDatabase(
            "between here and PostgreSQL is a pooler, such as PgBouncer. It would lend a connection that isn't in the "
            "schema of the measurement, so nothing is measured through it: give the URL of PostgreSQL itself."
        )


async def _make(keeper: _Session, name: str) -> None:
    """With its mark, or not at all."""
    try:
        await keeper.rows(f"DO $$ BEGIN CREATE SCHEMA {name}; COMMENT ON SCHEMA {name} IS '{MARK}'; END $$")
    except StoreError as error:
        if error.code == _READ_ONLY:
            raise StoreError(f"{error}. Give the URL of a server that may be written to.", code=error.code) from error
        if error.code != _FORBIDDEN:
            raise
        raise await _refusal(keeper, error) from error


async def _refusal(keeper: _Session, error: StoreError) -> StoreError:
    ((user, database),) = await keeper.rows("SELECT quote_ident(current_user), quote_ident(current_database())")
    return StoreError(
        f"the user {user} may not make a schema in the database {database}, and nothing is measured among your own "
        f"tables. Grant it (GRANT CREATE ON DATABASE {database} TO {user}), or give a URL with a user who may. "
        f"The server says: {error.__cause__}",
        code=error.code,
    )


async def _remove_left_overs(keeper: _Session, tell: Tell) -> None:
    for (name,) in await keeper.rows(_MARKED, NAME, MARK):
        ((is_ours,),) = await keeper.rows(_LOCK, name)
        if not is_ours:
            tell(f"another run is under way, in the schema {name}: each slows the other down")
            continue
        try:
            await _drop(keeper, name)
            tell(f"removed the schema {name}, which a run that was killed had left behind")
        except StoreError as error:
            tell(f"the schema {name} was left behind by a run that was killed, and can't be removed: {error}")
        finally:
            await keeper.rows(_UNLOCK, name)


async def _remove(url: str, settings: Settings, name: str, tell: Tell) -> None:
    """Over a new connection: the other one may be broken."""
    try:
        async with _session(url, settings) as connection:
            await _drop(connection, name)
    except OxpullError as error:
        tell(f"the schema {name} stays, for it can't be removed now: {error} The next run removes it.")


async def _drop(connection: _Session, name: str) -> None:
    """Whoever was cut off may hold a table for a moment."""
    await connection.rows("SET lock_timeout = '10s'")
    await connection.rows(f"DROP SCHEMA IF EXISTS {name} CASCADE")
