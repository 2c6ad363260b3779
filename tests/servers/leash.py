"""Runs one server as a plain user and ends it when its owner is gone, even by SIGKILL.

The owner holds the other end of our standard input. When that closes, the server and its folder go.
Started by `process.py`:  python leash.py UID GID SIGNAL FOLDER COMMAND…
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any

GRACE_SECONDS = 5


def main(uid: int, gid: int, polite_signal: int, folder: str, command: list[str]) -> int:
    user: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": []} if uid != os.geteuid() else {}
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True, **user)
    print(server.pid, flush=True)
    abandoned = threading.Event()
    threading.Thread(target=stop_when_abandoned, args=(server, polite_signal, abandoned), daemon=True).start()
    status = server.wait()
    if abandoned.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return status


def stop_when_abandoned(server: subprocess.Popen[bytes], polite_signal: int, abandoned: threading.Event) -> None:
    os.read(sys.stdin.fileno(), 1)  # nobody writes: it returns when the owner is gone
    abandoned.set()
    server.send_signal(signal.SIGCONT)  # a frozen one would not hear the next
    server.send_signal(polite_signal)
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    _, user, group, signal_number, home, *words = sys.argv
    sys.exit(main(int(user), int(group), int(signal_number), home, words))
