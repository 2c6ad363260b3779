"""MariaDB and MySQL: a database beside the user's. Its maker holds a lock of that name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import asyncmy

from oxpull_async._shield import shielded
from oxpull_async.benchmark.places import NAME, PREFIX, REMOVAL_SECONDS, Place, Tell, new_name, refuse_unusable
from oxpull_async.drivers.mysql._address import connect_arguments
from oxpull_async.drivers.mysql.errors import DRIVER_ERRORS, classify
from oxpull_async.exceptions import OxpullError, StoreError
from oxpull_async.settings import Settings

_MARK_TABLE: Final = "made_by_oxpull_async_bench"
_SERVER: Final = "CONCAT(@@hostname, ':', @@port)"
_PLACES: Final = "SELECT schema_name FROM information_schema.schemata WHERE schema_name REGEXP %s"
_MARKED: Final = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_FORBIDDEN: Final = frozenset({1044, 1142, 1227})


@asynccontextmanager
async def place_in(url: str, settings: Settings, tell: Tell) -> AsyncIterator[Place]:
    """A database of the user's server."""
    await refuse_unusable(url, settings)
    name = new_name()
    async with _session(url, settings) as keeper:
        await _remove_left_overs(keeper, tell)
        await keeper.rows("SELECT GET_LOCK(%s, 0)", name)
        removal = _remove(url, settings, name, tell)
        try:
            await _make(keeper, name)
        except BaseException as error:  # after a cancel, or a lost connection, it may be there
            if isinstance(error, StoreError) and error.code in _FORBIDDEN:
                removal.close()
            else:
                await shielded(removal, within=REMOVAL_SECONDS)
            raise
        try:
            await _mark(keeper, name)
            yield Place(f"the database {name}", urlsplit(url)._replace(path=f"/{name}").geturl())
        finally:
            await shielded(removal, within=REMOVAL_SECONDS)


class _Session:
    """A connection of its own, whose errors are the library's."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    async def rows(self, text: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Run a statement; its rows, if it has any."""
        try:
            async with self._raw.cursor() as cursor:
                await cursor.execute(text, values or None)
                found: Sequence[Sequence[Any]] = await cursor.fetchall()
                return found
        except DRIVER_ERRORS as error:
            raise classify(error) from error

    @property
    def thread(self) -> int:
        return int(self._raw.thread_id())


@asynccontextmanager
async def _session(url: str, settings: Settings) -> AsyncIterator[_Session]:
    seconds = settings.connect_timeout
    try:
        with anyio.fail_after(seconds):
            raw = await asyncmy.connect(**connect_arguments(url), connect_timeout=seconds, autocommit=True)
    except DRIVER_ERRORS as error:
        raise classify(error) from error
    try:
        yield _Session(raw)
    finally:
        raw.close()


async def _make(keeper: _Session, name: str) -> None:
    """With the character set of the user's own."""
    ((charset, collation),) = await keeper.rows("SELECT @@character_set_database, @@collation_database")
    try:
        await keeper.rows(f"CREATE DATABASE {name} CHARACTER SET {charset} COLLATE {collation}")
    except StoreError as error:
        if error.code not in _FORBIDDEN:
            raise
        raise await _refusal(keeper, error) from error


async def _mark(keeper: _Session, name: str) -> None:
    """Says that it's a place, and on which server its maker's lock is."""
    await keeper.rows(f"CREATE TABLE {name}.{_MARK_TABLE} AS SELECT {_SERVER} AS server")


async def _refusal(keeper: _Session, error: StoreError) -> StoreError:
    ((user,),) = await keeper.rows("SELECT CURRENT_USER()")
    name, _, host = str(user).rpartition("@")
    pattern = PREFIX.replace("_", r"\_") + "%"
    return StoreError(
        f"the user {user} may not make a database, and nothing is measured among your own tables. Grant it "
        f"(GRANT ALL ON `{pattern}`.* TO '{name}'@'{host}'), or give a URL with a user who may. "
        f"The server says: {error.__cause__}",
        code=error.code,
    )


async def _remove_left_overs(keeper: _Session, tell: Tell) -> None:
    for (name,) in await keeper.rows(_PLACES, f"^{NAME}$"):
        if not await _is_dead(keeper, name):
            tell(f"there is a database {name}: another run is under way, or one was killed; drop it in that case")
            continue
        try:
            await keeper.rows(f"DROP DATABASE IF EXISTS {name}")
            tell(f"removed the database {name}, which a run that was killed had left behind")
        except StoreError as error:
            tell(f"the database {name} was left behind by a run that was killed, and can't be removed: {error}")
        finally:
            await keeper.rows("SELECT RELEASE_LOCK(%s)", name)


async def _is_dead(keeper: _Session, name: str) -> bool:
    """Whether its maker's lock is free, on the server that the lock was taken on: a cluster doesn't share them.

    A proxy may run statements of one session on several servers, and gives its clients numbers of its own.
    Takes the lock.
    """
    ((thread,),) = await keeper.rows("SELECT CONNECTION_ID()")
    if thread != keeper.thread or not await keeper.rows(_MARKED, name, _MARK_TABLE):
        return False
    if not await keeper.rows(f"SELECT 1 FROM {name}.{_MARK_TABLE} WHERE server = {_SERVER}"):  # noqa: S608
        return False
    ((taken,),) = await keeper.rows("SELECT GET_LOCK(%s, 0)", name)
    return bool(taken == 1)


async def _remove(url: str, settings: Settings, name: str, tell: Tell) -> None:
    """Over a new connection: the other one may be broken."""
    try:
        async with _session(url, settings) as connection:
            await connection.rows("SET lock_wait_timeout = 10")
            await connection.rows(f"DROP DATABASE IF EXISTS {name}")
    except OxpullError as error:
        tell(f"the database {name} stays, for it can't be removed now: {error} The next run removes it.")
