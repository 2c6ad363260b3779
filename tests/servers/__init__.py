"""Real database servers for tests and benchmarks, each in a folder of its own, run by a plain user.

`with postgres_server() as server:` gives a `url` and `stop()`, `kill()`, `restart()`, `freeze()`, `thaw()`.
"""

from __future__ import annotations

from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.servers.postgres import PostgresServer, postgres_server
from tests.servers.process import ServerFailed, ServerMissing

__all__ = [
    "MariadbServer",
    "PostgresServer",
    "ServerFailed",
    "ServerMissing",
    "mariadb_server",
    "postgres_server",
]
