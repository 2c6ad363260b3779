"""PgBouncer in transaction mode, in front of a PostgreSQL."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.servers.plain_user import plain_user, servers_folder
from tests.servers.process import Server, ServerMissing, running

SERVER_CONNECTIONS = 2
SETTINGS = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {users}
admin_users = oxpull
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
server_reset_query_always = 0
"""


@contextlib.contextmanager
def pgbouncer(url: str) -> Iterator[PgBouncer]:
    """A running PgBouncer with two connections to each database of the server of this URL."""
    program = find_pgbouncer()
    if program is None:
        raise ServerMissing("PgBouncer: not installed, so its tests are not run")
    with servers_folder("pgbouncer") as folder:
        server = PgBouncer(folder, program, url)
        with running(server):
            yield server


def find_pgbouncer() -> str | None:
    """Where the program is, if it's installed."""
    found = shutil.which("pgbouncer", path=None) or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    return str(found) if found else None


class PgBouncer(Server):
    polite_signal = signal.SIGTERM  # at once; SIGINT would wait for the clients

    def __init__(self, folder: Path, program: str, url: str) -> None:
        super().__init__(folder)
        self._program = program
        self._target = urlsplit(url)

    @property
    def url(self) -> str:
        """The same database, through the pooler."""
        return f"postgresql://oxpull:oxpull@127.0.0.1:{self.port}{self._target.path}"

    def initialize(self) -> None:
        users = self.folder / "users.txt"
        users.write_text('"oxpull" "oxpull"\n')
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            SETTINGS.format(
                host=self._target.hostname,
                port=self._target.port,
                listen=self.port,
                users=users,
                connections=SERVER_CONNECTIONS,
            )
        )
        for file in (users, settings):
            plain_user().own(file)

    def command(self) -> list[str]:
        return [self._program, str(self.folder / "pgbouncer.ini")]

    def ping(self) -> None:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=2, prepare_threshold=None) as client:
            client.execute("SELECT 1")
