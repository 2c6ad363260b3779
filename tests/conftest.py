"""Fixtures for every room of the suite.

`engine` runs a test once per engine: "sqlite", "postgres", "mariadb" and those of OXPULL_TEST_MYSQL_URLS;
`@pytest.mark.engines("postgres", "mysql")` narrows that, and a small run has each test on one server of the MySQL
family, in turn. On that engine, `database_url` is a new empty
database, `migrated_url` a new one with all tables, `ox` an open `Oxpull` on a new one with all tables.
`own_postgres` and `own_mariadb` are servers for one test alone, to be killed, frozen and restarted.
A test whose engine this machine lacks is skipped, and fails where CI is set.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.scale import SCALE, in_turn, rounds
from tests.servers import MariadbServer, PostgresServer, ServerMissing, mariadb_server, postgres_server
from tests.servers.databases import Databases, dialect_of, engines

if TYPE_CHECKING:
    from oxpull_async import Oxpull

# The reference lives in an environment of its own: it needs a newer Python than we do.
collect_ignore = [] if importlib.util.find_spec("django_ox") else ["interop"]

# A small run tries the same examples each time, a full run others: a change should fail for what it changes.
# A busy machine makes examples slowly, which says nothing about them.
hypothesis.settings.register_profile(
    "oxpull",
    max_examples=rounds(small=50, full=2_000),
    derandomize=SCALE == "small",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("oxpull")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run per engine of whatever asks for `engine`, unless the test names its engines by parametrize."""
    parametrized = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "engine" in metafunc.fixturenames and "engine" not in parametrized:
        metafunc.parametrize("engine", _wanted_engines(metafunc.definition), indirect=True)


def _wanted_engines(test: pytest.Item) -> list[str]:
    wanted = [set(mark.args) for mark in test.iter_markers("engines")]
    return in_turn([name for name in engines() if all({name, dialect_of(name)} & names for names in wanted)], test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _missing_engine_is_told():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _missing_engine_is_told():
        return (yield)


@contextlib.contextmanager
def _missing_engine_is_told() -> Iterator[None]:
    try:
        yield
    except ServerMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Databases on any engine, for tests that want more than one; the servers start on first use."""
    databases = Databases(tmp_path_factory.mktemp("databases"))
    yield databases
    databases.close()


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The id of the engine under test."""
    name: str = request.param
    return name


@pytest.fixture
def dialect(engine: str) -> str:
    """Of the engine under test: "sqlite", "postgres" or "mysql"."""
    return dialect_of(engine)


@pytest.fixture
def database_url(databases: Databases, engine: str) -> Iterator[str]:
    """A new empty database."""
    with databases.empty(engine) as url:
        yield url


@pytest.fixture
def migrated_url(databases: Databases, engine: str) -> Iterator[str]:
    """A new database with all tables."""
    with databases.migrated(engine) as url:
        yield url


@pytest.fixture
async def ox(migrated_url: str) -> AsyncIterator[Oxpull]:
    """An open `Oxpull` on a new database with all tables."""
    from oxpull_async import Oxpull  # here, so that tests of single layers run while the whole doesn't

    async with Oxpull(migrated_url) as ox:
        yield ox


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for this test alone, with an empty database at its `url`."""
    with postgres_server(durable=False) as server:
        yield server


@pytest.fixture
def own_mariadb() -> Iterator[MariadbServer]:
    """A MariaDB for this test alone, with an empty database at its `url`."""
    with mariadb_server(durable=False) as server:
        yield server
