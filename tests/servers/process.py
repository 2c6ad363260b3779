"""One server process: started on a free port, waited for, stopped, killed, frozen."""

from __future__ import annotations

import abc
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.servers.plain_user import plain_user

LEASH = Path(__file__).with_name("leash.py")
START_SECONDS = 30
STOP_SECONDS = 20
# Below the ports that the system hands to outgoing connections, which could take a stopped server's port.
PORTS = (20_000, 32_000)


class ServerMissing(Exception):
    """This machine has no such server."""


class ServerFailed(Exception):
    """The server didn't start or stop; the end of its log is in the message."""


class Server(abc.ABC):
    """A server with its own data folder. `url` names a database and stays the same over restarts."""

    polite_signal: signal.Signals

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.port = free_port()
        self._leash: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    @abc.abstractmethod
    def url(self) -> str: ...

    @abc.abstractmethod
    def initialize(self) -> None:
        """Fills the data folder. Called once."""

    @abc.abstractmethod
    def command(self) -> list[str]: ...

    @abc.abstractmethod
    def ping(self) -> None:
        """Raises unless the server answers a query."""

    def start(self) -> None:
        """Returns when it answers queries. Raises ServerFailed with the end of its log."""
        user = plain_user()
        words = [user.uid, user.gid, int(self.polite_signal), self.folder, *self.command()]
        with self.log.open("ab") as log:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", "-S", LEASH, *(str(word) for word in words)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                cwd=self.folder, env=self.environment(), start_new_session=True,
            )  # fmt: skip
        assert self._leash.stdout is not None
        self._pid = int(self._leash.stdout.readline() or 0)
        self._wait(self._answers, START_SECONDS, "start")

    def stop(self) -> None:
        """An orderly stop, which cuts off the clients. Does nothing if it isn't running."""
        if self.is_running:
            self.thaw()
            signal_all([self._pid], self.polite_signal)
            self._wait(lambda: not self.is_running, STOP_SECONDS, "stop")
        self._let_go()

    def kill(self) -> None:
        """Ends all its processes at once, as a power cut would (but the system still writes to disk)."""
        victims = self._pids()
        signal_all(victims, signal.SIGKILL)
        self._wait(lambda: not set(victims) & {pid for pid, _ in process_table()}, STOP_SECONDS, "die")
        self._let_go()

    def restart(self) -> None:
        """Starts it again on its data and port, stopped first if it runs."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """It keeps its connections and answers nothing, until `thaw()`."""
        signal_all(self._pids(), signal.SIGSTOP)

    def thaw(self) -> None:
        signal_all(self._pids(), signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self._leash is not None and self._leash.poll() is None

    def environment(self) -> dict[str, str]:
        """Ours has variables that a server would listen to (PGDATA, LC_ALL, …)."""
        home = str(self.folder)
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": home, "HOME": home}

    def run_once(self, command: list[str]) -> None:
        """Runs a program of the server's to its end, as the plain user. ServerFailed has its output."""
        place = {"cwd": self.folder, "env": self.environment(), **plain_user().process_options}
        answer = subprocess.run(command, capture_output=True, text=True, check=False, **place)
        if answer.returncode != 0:
            raise ServerFailed(f"{command[0]} failed:\n{answer.stdout[-2000:]}{answer.stderr[-2000:]}")

    def _answers(self) -> bool:
        if not self.is_running:
            raise ServerFailed(f"it ended by itself\n{self.log_tail()}")
        try:
            self.ping()
        except Exception:
            return False
        return True

    def _wait(self, condition: Callable[[], bool], seconds: float, deed: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{type(self).__name__} didn't {deed} in {seconds} s\n{self.log_tail()}")
            time.sleep(0.01)

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def _pids(self) -> list[int]:
        return [self._pid, *children_of(self._pid)] if self.is_running else []

    def _let_go(self) -> None:
        if self._leash is None:
            return
        self._leash.wait(STOP_SECONDS)  # before its pipe closes, or it would remove the folder of a dead owner
        for pipe in (self._leash.stdin, self._leash.stdout):
            assert pipe is not None
            pipe.close()
        self._leash = None


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    """Initialized and started; stopped at the end, or killed if it won't stop."""
    server.initialize()
    try:
        server.start()
        yield
    finally:
        try:
            server.stop()
        except ServerFailed:
            server.kill()
            raise


def free_port() -> int:
    choice = random.SystemRandom()  # not `random`: the suite seeds that one alike in every process
    while True:
        port = choice.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def children_of(pid: int) -> list[int]:
    return [child for child, parent in process_table() if parent == pid]


def process_table() -> Iterator[tuple[int, int]]:
    """(process, its parent) of all that live, from /proc or, on a system without one, from `ps`."""
    if not Path("/proc/self/stat").exists():
        ps = ["ps", "-A", "-o", "pid=,ppid=,stat="]
        for line in subprocess.run(ps, capture_output=True, text=True, check=True).stdout.splitlines():
            pid, parent, state = line.split()
            if not state.startswith("Z"):
                yield int(pid), int(parent)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent, *_ = stat.read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(stat.parent.name), int(parent)
