"""MariaDB, from the system's packages."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pymysql

from tests.servers.plain_user import servers_folder
from tests.servers.process import Server, ServerMissing, running

ALWAYS = {
    "max-connections": "200",
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "skip-log-bin": "1",
}
# For a suite that makes and drops a database per test and needs nothing back after a power cut.
NOT_DURABLE = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "0"}

# Statements end at the line's end. Anonymous users would shadow ours.
INIT_SQL = """\
DROP USER IF EXISTS ''@'localhost';
CREATE DATABASE IF NOT EXISTS oxpull CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS oxpull@'127.0.0.1' IDENTIFIED BY 'oxpull';
GRANT ALL ON *.* TO oxpull@'127.0.0.1' WITH GRANT OPTION;
"""


@contextlib.contextmanager
def mariadb_server(options: Mapping[str, str] | None = None, *, durable: bool = True) -> Iterator[MariadbServer]:
    """A running MariaDB with its own data folder; `options` are server options without their dashes.

    Raises ServerMissing if it isn't installed, ServerFailed with the end of the log if it doesn't start.
    """
    with servers_folder("mariadb") as folder:
        settings = {**ALWAYS, **({} if durable else NOT_DURABLE), **(options or {})}
        server = MariadbServer(folder, settings)
        with running(server):
            yield server


class MariadbServer(Server):
    polite_signal = signal.SIGTERM

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._settings = settings

    @property
    def url(self) -> str:
        return f"mysql://oxpull:oxpull@127.0.0.1:{self.port}/oxpull"

    def initialize(self) -> None:
        install = [required_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}"]
        ease = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self.run_once([*install, *ease, "--force", f"--tmpdir={self.folder}"])
        (self.folder / "init.sql").write_text(INIT_SQL)

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        places = [f"--datadir={self.data}", f"--port={self.port}", f"--init-file={self.folder}/init.sql"]
        places += [f"--tmpdir={self.folder}"]  # the system's may be root's alone
        places += ["--socket=server.sock"]  # in the data folder: a whole path may be too long for a socket
        return [required_program("mariadbd"), "--no-defaults", *places, *settings]

    def ping(self) -> None:
        login = {"user": "oxpull", "password": "oxpull", "database": "oxpull"}
        patience = {"connect_timeout": 2, "read_timeout": 2}  # the first is for TCP alone
        pymysql.connect(host="127.0.0.1", port=self.port, **patience, **login).close()


def required_program(name: str) -> str:
    if found := find_program(name):
        return found
    how = "'apt-get install mariadb-server', 'brew install mariadb'"
    raise ServerMissing(f"MariaDB: '{name}' isn't installed ({how})")


def find_program(name: str) -> str | None:
    """Its path, also in the folders that only root's PATH names."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"]
    return shutil.which(name, path=os.pathsep.join(places))
