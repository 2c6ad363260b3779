"""``from_django``: what of Django's settings an Oxpull takes over, and what it refuses by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from asgiref.sync import sync_to_async
from django.db import connections
from django.test import override_settings
from django_project import tasks

from oxpull_async import Backoff, InvalidSettings
from oxpull_async.integrations.django import DjangoConnection, aatomic, from_django

POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}
MYSQL = {"ENGINE": "django.db.backends.mysql", "NAME": "shop"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/var/lib/shop.db"}
OX = "oxpull.backend.OxpullBackend"


@pytest.fixture
def database() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Makes an entry of DATABASES the one that Django has."""
    kept = copy.deepcopy(connections.settings["default"])

    def become(entry: dict[str, Any]) -> None:
        configured = connections.configure_settings({"default": copy.deepcopy(entry)})["default"]
        connections.settings["default"].clear()
        connections.settings["default"].update(configured)

    yield become
    become(kept)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        (SQLITE, "sqlite:////var/lib/shop.db"),
        (SQLITE | {"NAME": Path("/srv/a b?#%.db")}, "sqlite:////srv/a%20b%3F%23%25.db"),
        (POSTGRES, "postgresql:///shop"),
        (
            POSTGRES | {"HOST": "db", "PORT": 6432, "USER": "a b", "PASSWORD": "p@:/?#%"},
            "postgresql://a%20b:p%40%3A%2F%3F%23%25@db:6432/shop",
        ),
        (POSTGRES | {"HOST": "::1", "USER": "u"}, "postgresql://u@[::1]/shop"),
        (
            POSTGRES | {"HOST": "/run/pg", "PORT": "5433", "USER": "u"},
            "postgresql://u@/shop?host=/run/pg&port=5433",
        ),
        (POSTGRES | {"HOST": "a,b", "USER": "u"}, "postgresql://u@/shop?host=a%2Cb"),
        (
            POSTGRES | {"OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/ca", "options": "-c search_path=x"}},
            "postgresql:///shop?options=-c%20search_path%3Dx&sslmode=verify-full&sslrootcert=/ca",
        ),
        (POSTGRES | {"OPTIONS": {"assume_role": "owner"}}, "postgresql:///shop?role=owner"),
        (POSTGRES | {"NAME": "", "OPTIONS": {"service": "shop"}}, "postgresql://?service=shop"),
        (POSTGRES | {"OPTIONS": {"pool": True, "isolation_level": 3, "keepalives": 1}}, "postgresql:///shop"),
        (MYSQL | {"HOST": "db", "USER": "u", "PASSWORD": "p"}, "mysql://u:p@db/shop"),
        (MYSQL | {"HOST": "/run/mysqld.sock", "USER": "u"}, "mysql://u@/shop?unix_socket=/run/mysqld.sock"),
        (
            MYSQL | {"HOST": "db", "OPTIONS": {"charset": "utf8mb4", "ssl": {"ca": "/ca"}, "ssl_mode": "REQUIRED"}},
            "mysql://db/shop?ssl_ca=/ca&ssl=required",
        ),
        (MYSQL | {"HOST": "db", "OPTIONS": {"ssl": {"ca": "/ca"}}}, "mysql://db/shop?ssl_ca=/ca&ssl=verify_ca"),
    ],
)
def test_an_entry_of_databases_becomes_the_url_of_the_same_database(database, entry: dict[str, Any], url: str):
    database(entry)

    assert from_django().settings.database == url


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (SQLITE | {"NAME": ":memory:"}, "in memory"),
        (SQLITE | {"NAME": "file:shop?mode=memory"}, "file: URI"),
        (SQLITE | {"OPTIONS": {"uri": True}}, "uri"),
        (SQLITE | {"TIME_ZONE": "Europe/Berlin"}, "TIME_ZONE"),
        (POSTGRES | {"OPTIONS": {"channel_binding": "require"}}, "channel_binding"),
        (MYSQL | {"OPTIONS": {"read_default_file": "/etc/my.cnf"}}, "read_default_file"),
        (MYSQL | {"OPTIONS": {"ssl": {"cipher": "x"}}}, "cipher"),
        (MYSQL | {"OPTIONS": {"ssl_mode": "PREFERRED"}}, "PREFERRED"),
        (MYSQL | {"TIME_ZONE": "Europe/Berlin"}, "TIME_ZONE"),
        ({"ENGINE": "django.db.backends.dummy"}, "unknown"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(database, entry: dict[str, Any], name: str):
    database(entry)

    with pytest.raises(InvalidSettings, match=name):
        from_django()

    assert from_django(database="sqlite:///own.db").settings.database == "sqlite:///own.db"


def test_timeouts_and_a_pooler_are_taken_over(database):
    database(POSTGRES | {"DISABLE_SERVER_SIDE_CURSORS": True, "OPTIONS": {"connect_timeout": 3}})

    settings = from_django().settings

    assert (settings.connect_timeout, settings.statement_cache) == (3.0, False)


@override_settings(USE_TZ=False)
def test_local_times_are_refused_where_rows_would_hold_them(database):
    database(SQLITE)
    with pytest.raises(InvalidSettings, match="USE_TZ"):
        from_django()

    database(POSTGRES)
    assert from_django().settings.database == "postgresql:///shop"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, {"queues": ("default",), "max_attempts": 3, "lease": 300.0, "backoff": Backoff()}),
        ({"QUEUES": []}, {"queues": None}),
        ({"QUEUES": ["mail", "default"]}, {"queues": ("mail", "default")}),
        (
            {"OPTIONS": {"MAX_ATTEMPTS": 9, "LOCK_TIMEOUT": 60, "UNIQUE_TASKS": ["a.b"], "SCHEDULES": {}}},
            {"max_attempts": 9, "lease": 60.0, "unique_tasks": frozenset({"a.b"})},
        ),
        ({"OPTIONS": {"BACKOFF_INITIAL": 1}}, {"backoff": Backoff(1, 600)}),
        ({"OPTIONS": {"BACKOFF_MAX": 30}}, {"backoff": Backoff(5, 30)}),
    ],
)
def test_a_backend_of_tasks_is_taken_over(database, entry: dict[str, Any], expected: dict[str, Any]):
    database(SQLITE)
    with override_settings(TASKS={"default": {}, "orders": {"BACKEND": OX, **entry}}):
        settings = from_django(backend="orders").settings

    assert settings.backend_name == "orders"
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"MAX_ATTEMPTS": "3"}, "MAX_ATTEMPTS"),
        ({"MAX_ATTEMPTS": 0}, "max_attempts"),
        ({"LOCK_TIMEOUT": "60"}, "LOCK_TIMEOUT"),
        ({"LOCK_TIMEOUT": 0.5}, "lease"),
        ({"UNIQUE_TASKS": "a.b"}, "UNIQUE_TASKS"),
        ({"BACKOFF_INITIAL": "soon"}, "BACKOFF_INITIAL"),
    ],
)
def test_options_that_an_oxpull_cannot_have_are_refused_by_name(database, options: dict[str, Any], name: str):
    database(SQLITE)
    with (
        override_settings(TASKS={"default": {"BACKEND": OX, "OPTIONS": options}}),
        pytest.raises(InvalidSettings, match=name),
    ):
        from_django()


def test_overrides_win(database):
    database(SQLITE)

    settings = from_django(backend="listed", max_attempts=2, queues=["x"], backend_name="y").settings

    assert (settings.max_attempts, settings.queues, settings.backend_name) == (2, ("x",), "y")


def test_unknown_names_are_refused(database):
    database(SQLITE)
    with pytest.raises(InvalidSettings, match="DATABASES has no 'nowhere'"):
        from_django("nowhere")
    with pytest.raises(InvalidSettings, match="TASKS has no backend 'nobody'"):
        from_django(backend="nobody")
    with (
        override_settings(TASKS={"default": {"BACKEND": "nowhere.Backend"}}),
        pytest.raises(InvalidSettings, match="BACKEND"),
    ):
        from_django()


def test_the_backend_of_a_project_without_django_ox_says_nothing_of_rows(database):
    database(SQLITE)
    backend = "django.tasks.backends.immediate.ImmediateBackend"
    with override_settings(TASKS={"default": {"BACKEND": backend}}):
        assert from_django().settings.queues is None
    with override_settings(TASKS={}):
        assert from_django().settings.queues is None


class _Elsewhere:
    def db_for_write(self, model: Any, **hints: object) -> str | None:
        return "other" if model._meta.app_label == "django_ox" else None


def test_a_router_that_sends_the_task_rows_elsewhere_is_heard(database):
    database(SQLITE)
    with (
        override_settings(DATABASE_ROUTERS=[_Elsewhere()]),
        pytest.raises(InvalidSettings, match=r"from_django\(using='other'\)"),
    ):
        from_django()


@pytest.mark.usefixtures("django_here")
async def test_it_reaches_the_database_that_django_is_on():
    async with from_django() as ox:
        result = await ox.enqueue(tasks.unique_plain, 1)
        theirs = await sync_to_async(tasks.unique_plain.enqueue)(1)
        async with aatomic():
            bound = await ox.bind(DjangoConnection()).enqueue(tasks.unique_plain, 1)

    assert theirs.id == str(result.id) == str(bound.id)
    await sync_to_async(connections.close_all)()
