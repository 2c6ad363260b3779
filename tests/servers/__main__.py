"""`make servers`: PostgreSQL and MariaDB to play with, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.servers import ServerMissing, mariadb_server, postgres_server
from tests.servers.process import Server

KINDS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    "PostgreSQL": postgres_server,
    "MariaDB": mariadb_server,
}


def main() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with contextlib.ExitStack() as servers:
        for name, start in KINDS.items():
            print(f"starting {name} ...", flush=True)
            try:
                print(f"  {servers.enter_context(start()).url}", flush=True)
            except ServerMissing as missing:
                print(f"  {missing}", flush=True)
        print("Ctrl-C stops them and removes their data.", flush=True)
        ended.wait()
        print("\nstopping ...", flush=True)


if __name__ == "__main__":
    main()
