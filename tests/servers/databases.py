"""A database for every test: created in milliseconds, empty or migrated, dropped afterwards.

A server starts when a test first needs it. Tables are made once per engine, by `Oxpull.migrate()`, then copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql

from tests.servers import ServerFailed, mariadb_server, postgres_server

_numbers = itertools.count(1)


class Databases:
    """Fresh databases on any engine of this run, by the engine's id. Closes what it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = contextlib.ExitStack()
        self._rooms: dict[str, Room] = {}
        self._failures: dict[str, ServerFailed] = {}

    @contextlib.contextmanager
    def empty(self, engine: str) -> Iterator[str]:
        """The URL of a new database without tables."""
        room = self._room(engine)
        url = room.create()
        try:
            yield url
        finally:
            room.drop(url)

    @contextlib.contextmanager
    def migrated(self, engine: str) -> Iterator[str]:
        """The URL of a new database with all tables."""
        room = self._room(engine)
        url = room.copy_of_migrated()
        try:
            yield url
        finally:
            room.drop(url)

    def close(self) -> None:
        self._rooms.clear()
        self._started.close()

    def _room(self, engine: str) -> Room:
        if engine in self._failures:
            raise self._failures[engine]  # at once, instead of waiting for it again in every test
        if engine not in self._rooms:
            try:
                self._rooms[engine] = self._open_room(engine)
            except ServerFailed as failure:
                self._failures[engine] = failure
                raise
        return self._rooms[engine]

    def _open_room(self, engine: str) -> Room:
        if engine == "sqlite":
            return SqliteRoom(self._folder)
        if engine == "postgres":
            url = os.environ.get("OXPULL_TEST_POSTGRES_URL")
            url = url or self._started.enter_context(postgres_server(durable=False)).admin_url
            return self._started.enter_context(PostgresRoom(url))
        if engine == "mariadb":
            url = self._started.enter_context(mariadb_server(durable=False)).url
        else:
            url = mysql_urls()[engine]
        return self._started.enter_context(MysqlRoom(url))


def engines() -> list[str]:
    return ["sqlite", "postgres", "mariadb", *mysql_urls()]


def dialect_of(engine: str) -> str:
    """Of an engine's id: "sqlite", "postgres" or "mysql"."""
    return engine if engine in ("sqlite", "postgres") else "mysql"


@cache
def mysql_urls() -> dict[str, str]:
    """Further servers by id, as in OXPULL_TEST_MYSQL_URLS="mysql9=mysql://…,mysql://…": mysql9, mysql-2."""
    entries = filter(None, os.environ.get("OXPULL_TEST_MYSQL_URLS", "").replace(" ", "").split(","))
    return dict(_named_url(entry, number) for number, entry in enumerate(entries, 1))


def _named_url(entry: str, number: int) -> tuple[str, str]:
    match = re.fullmatch(r"(?:([\w.-]+)=)?((?:mysql|mariadb)://.+)", entry)
    if match is None:
        raise ValueError(f"OXPULL_TEST_MYSQL_URLS: {entry!r} isn't [name=]mysql://user:password@host:port/database")
    return match[1] or f"mysql-{number}", match[2]


class Room(Protocol):
    def create(self) -> str: ...
    def copy_of_migrated(self) -> str: ...
    def drop(self, url: str) -> None: ...


class SqliteRoom:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template: Path | None = None

    def create(self) -> str:
        folder = self._folder / f"sqlite-{next(_numbers)}"
        folder.mkdir()
        return f"sqlite:///{folder / 'oxpull.db'}"

    def copy_of_migrated(self) -> str:
        if self._template is None:
            migrated = self.create()
            migrate(migrated)
            self._template = self._path(migrated)
        url = self.create()
        # With its -wal, if the last connection left one.
        for file in self._template.parent.iterdir():
            shutil.copyfile(file, self._path(url).parent / file.name)
        return url

    def drop(self, url: str) -> None:
        shutil.rmtree(self._path(url).parent)

    def _path(self, url: str) -> Path:
        return Path(url.removeprefix("sqlite:///"))


class PostgresRoom:
    def __init__(self, admin_url: str) -> None:
        self._server, _, _ = admin_url.rpartition("/")
        self._admin = psycopg.connect(admin_url, autocommit=True)
        self._template = ""

    def __enter__(self) -> PostgresRoom:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def create(self, template: str = "template0") -> str:
        name = f"oxpull_{os.getpid()}_{next(_numbers)}"  # the server may be shared with other processes
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return f"{self._server}/{name}"

    def copy_of_migrated(self) -> str:
        if not self._template:
            migrated = self.create()
            migrate(migrated)
            self._template = name_in(migrated)
        return self.create(self._template)

    def drop(self, url: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name_in(url)} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        self._admin.execute(statement)


class MysqlRoom:
    """MySQL and MariaDB copy no database: the migrated one's DDL and rows are replayed."""

    def __init__(self, admin_url: str) -> None:
        self._url = urlsplit(admin_url)
        self._admin = pymysql.connect(
            host=self._url.hostname or "127.0.0.1",
            port=self._url.port or 3306,
            user=unquote(self._url.username or ""),
            password=unquote(self._url.password or ""),
            autocommit=True,
        )
        self._execute("SET SESSION foreign_key_checks = 0, lock_wait_timeout = 5")
        self._template = ""
        self._ddl: list[str] = []
        self._filled: list[str] = []

    def __enter__(self) -> MysqlRoom:
        return self

    def __exit__(self, *_: object) -> None:
        if self._template:
            self.drop(self._template)
        self._admin.close()

    def create(self) -> str:
        name = f"oxpull_{os.getpid()}_{next(_numbers)}"  # several runs may share this server
        self._execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self._url._replace(path=f"/{name}").geturl()

    def copy_of_migrated(self) -> str:
        if not self._template:
            self._learn_template()
        url = self.create()
        self._admin.select_db(name_in(url))
        for statement in self._ddl:
            self._execute(statement)
        for table in self._filled:
            self._execute(f"INSERT INTO `{table}` SELECT * FROM {name_in(self._template)}.`{table}`")
        return url

    def drop(self, url: str) -> None:
        # A connection that a test left in a transaction would make the DROP wait for its metadata lock.
        leftovers = (
            f"SELECT id FROM information_schema.processlist WHERE db = '{name_in(url)}' AND id <> CONNECTION_ID()"
        )
        for (connection,) in self._execute(leftovers):
            with contextlib.suppress(pymysql.MySQLError):
                self._execute(f"KILL {connection}")
        self._execute(f"DROP DATABASE IF EXISTS {name_in(url)}")

    def _learn_template(self) -> None:
        url = self.create()
        try:
            migrate(url)
        except BaseException:
            self.drop(url)  # this server may outlive us
            raise
        self._admin.select_db(name_in(url))
        tables = [table for (table,) in self._execute("SHOW TABLES")]
        self._ddl = [self._execute(f"SHOW CREATE TABLE `{table}`")[0][1] for table in tables]
        self._filled = [table for table in tables if self._execute(f"SELECT 1 FROM `{table}` LIMIT 1")]
        self._template = url

    def _execute(self, statement: str) -> Any:
        with self._admin.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()


def name_in(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def migrate(url: str) -> None:
    """In a thread of its own, which no test's event loop has touched."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _migrate(url)).result()


async def _migrate(url: str) -> None:
    from oxpull_async import Oxpull  # here, so that tests of single layers run while the whole doesn't

    async with Oxpull(url) as ox:
        await ox.migrate()
