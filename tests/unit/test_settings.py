"""The settings: what they take, and what the environment may say."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from oxpull_async import Backoff, InvalidSettings, InvalidTask, Oxpull, Settings
from oxpull_async.drivers import open_store
from oxpull_async.settings import make_settings, settings_from_environment

DURATIONS = ["lease", "unique_wait", "connect_timeout", "pool_timeout", "close_timeout", "statement_timeout"]


def test_nothing_need_be_set():
    settings = Oxpull().settings

    assert settings == Settings()
    assert settings.database is None
    assert (settings.backend_name, settings.max_attempts, settings.lease) == ("default", 3, 300)
    assert (settings.unique_wait, settings.queues, settings.backoff) == (10, None, Backoff())


def test_none_stands_for_the_default():
    assert make_settings({"max_attempts": None, "queues": None, "lease": None}) == Settings()


def test_settings_do_not_change():
    settings = Oxpull(max_attempts=5).settings

    with pytest.raises(ValidationError):
        settings.max_attempts = 6


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("value", "seconds"), [(2, 2.0), (2.5, 2.5), (timedelta(minutes=2), 120.0), (timedelta(seconds=1.25), 1.25)]
)
def test_a_duration_is_seconds_or_a_timedelta(name: str, value: Any, seconds: float):
    assert getattr(make_settings({name: value}), name) == seconds


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", [-1, 0, math.nan, math.inf, "soon", True, timedelta(seconds=-1), object()])
def test_a_duration_that_is_none_is_refused_by_its_name(name: str, value: Any):
    with pytest.raises(InvalidSettings, match=name):
        make_settings({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0), ("max_attempts", 32768), ("max_attempts", 1.5), ("max_attempts", "many"),
        ("lease", 0.999), ("pool_size", 0), ("backend_name", ""), ("backend_name", "x" * 129), ("queues", "mail"),
        ("unique_tasks", "proof.tasks.send"), ("synchronous", "OFF"), ("backoff", 5), ("queues", 5),
        ("statement_cache", "perhaps"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_named(name: str, value: Any):
    with pytest.raises(InvalidSettings, match=rf"setting {name}.*: .*\(given: ") as caught:
        Oxpull(**{name: value})

    assert isinstance(caught.value, ValueError)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["prune_older_than", "prune_batches_older_than"])
def test_nothing_is_pruned_unless_an_age_is_set(name: str):
    assert getattr(Settings(), name) is None
    assert getattr(make_settings({name: timedelta(days=1)}), name) == 86400.0
    assert settings_from_environment({f"OXPULL_{name.upper()}": "30d"}) == {name: timedelta(days=30)}
    with pytest.raises(InvalidSettings, match=name):
        make_settings(settings_from_environment({f"OXPULL_{name.upper()}": "a month"}))


def test_several_mistakes_are_told_at_once():
    with pytest.raises(InvalidSettings, match="setting max_attempts.*setting pool_size"):
        Oxpull(max_attempts=0, pool_size=0)


def test_a_setting_that_does_not_exist_is_named():
    with pytest.raises(InvalidSettings, match="no_such_thing"):
        Oxpull(no_such_thing=1)


def test_names_may_come_in_any_collection():
    assert Oxpull(queues={"a"}).settings.queues == ("a",)
    assert Oxpull(unique_tasks=["a", "a"]).settings.unique_tasks == frozenset({"a"})
    assert Oxpull(queues=[]).settings.queues == ()


def test_the_environment_says_what_is_set_there():
    settings = Oxpull.from_env(
        {
            "OXPULL_DATABASE_URL": "sqlite:///x.db", "OXPULL_MAX_ATTEMPTS": "7", "OXPULL_LEASE": "12.5",
            "OXPULL_QUEUES": "mail, slow,,", "OXPULL_UNIQUE_TASKS": "a.b", "OXPULL_STATEMENT_CACHE": "false",
            "OXPULL_SYNCHRONOUS": "NORMAL", "OXPULL_UNIQUE_WAIT": "3", "OTHER": "5", "OXPULL_APP": "module:ox",
        }
    ).settings  # fmt: skip

    assert settings == Settings(
        database="sqlite:///x.db", max_attempts=7, lease=12.5, queues=("mail", "slow"),
        unique_tasks=frozenset({"a.b"}), statement_cache=False, synchronous="NORMAL", unique_wait=3,
    )  # fmt: skip


def test_the_environment_of_this_process_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OXPULL_POOL_SIZE", "4")

    assert settings_from_environment()["pool_size"] == "4"
    assert Oxpull.from_env().settings.pool_size == 4


def test_an_empty_environment_sets_nothing():
    assert settings_from_environment({}) == {}


@pytest.mark.parametrize(
    ("variable", "text"),
    [("LEASE", "soon"), ("MAX_ATTEMPTS", "0"), ("POOL_SIZE", "x"), ("STATEMENT_CACHE", "perhaps"), ("LEASE", "")],
)
def test_a_mistake_in_the_environment_is_told_as_such(variable: str, text: str):
    with pytest.raises(InvalidSettings, match=rf"environment: setting {variable.lower()}: "):
        Oxpull.from_env({f"OXPULL_{variable}": text})


@pytest.mark.parametrize("url", ["oracle://x", "nonsense", ""])
async def test_a_url_that_no_room_serves_is_told_at_opening(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OXPULL_DATABASE_URL", raising=False)

    with pytest.raises(InvalidSettings, match="sqlite:///"):
        await Oxpull(url).open()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("leas", "no setting 'leas'; did you mean 'lease'"),
        ("poolsize", "did you mean 'pool_size'"),
        ("xyz", "no setting 'xyz'$"),
    ],
)
def test_a_setting_that_does_not_exist_is_told_with_its_nearest(given: str, words: str):
    with pytest.raises(InvalidSettings, match=words):
        make_settings({given: 3})


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql+psycopg", "sqlite+aiosqlite", "mysql+asyncmy"])
def test_a_url_of_sqlalchemy_s_is_told_how_to_write_it(scheme: str):
    with pytest.raises(InvalidSettings, match=f"Write {scheme.partition('+')[0]}:// instead of {re.escape(scheme)}://"):
        open_store(f"{scheme}://somebody:secret@host/name", make_settings({}))


def test_a_task_option_that_does_not_exist_is_told_with_its_nearest():
    with pytest.raises(InvalidTask, match="no task option 'queue'; did you mean 'queue_name'"):
        Oxpull().task(queue="mail")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ox:s3c[ret@db.example/shop",
        "postgresql://ox:s3cret\u2100@db.example/shop",
        "postgresql://ox:1/s3cret@db.example/shop",
        "postgresql://ox:1#s3cret@db.example/shop",
        "postgresql://ox:s3c@ret/x@db.example/shop",
        "postgresql://ox:s3c@ret@db.example/shop",
        "mysql://ox:s3c]ret@db.example/shop",
        "mysql://ox:1/s3cret@db.example/shop",
        "mysql://ox:1#s3cret@db.example/shop",
        "mariadb://ox:s3c@ret/x@db.example/shop",
    ],
)
async def test_a_password_that_is_not_escaped_is_told_so_and_not_shown(url: str):
    with pytest.raises(InvalidSettings, match="write @ as %40") as caught:
        await Oxpull(url).open()

    assert "s3c" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    "url", ["sqlite:shop.db", "sqlite:/shop.db", "postgres:localhost/shop", "mysql:localhost/shop"]
)
async def test_a_url_without_its_slashes_is_refused(url: str):
    with pytest.raises(InvalidSettings, match="no // follows"):
        await Oxpull(url).open()


@pytest.mark.parametrize("hosts", ["127.0.0.1:99999", "127.0.0.1:5432,127.0.0.1:65536", "[::1]:70000"])
async def test_a_port_beyond_the_highest_is_refused_on_postgres(hosts: str):
    with pytest.raises(InvalidSettings, match="beyond the highest"):
        await Oxpull(f"postgresql://ox@{hosts}/shop").open()
