"""The reference in processes of its own, kept for the whole run: each test leads them to its database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread

HERE = Path(__file__).parent


class Peer:
    """A process of ``django_project.peer``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def order(self, name: str, *arguments: Any) -> Any:
        """What the function of that name returns there. Raises: AssertionError with what it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments], default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the peer has died on {name}{arguments}"
        answer = json.loads(line)
        assert "error" not in answer, f"the peer, on {name}{arguments}: {answer['error']}"
        return answer["value"]

    def kill(self) -> None:
        """End it wherever it is."""
        self._process.kill()

    async def tell(self, name: str, *arguments: Any) -> Any:
        """As ``order``, while the event loop goes on."""
        return await anyio.to_thread.run_sync(lambda: self.order(name, *arguments))


@contextmanager
def started_peer(module: str = "django_project.peer") -> Iterator[Peer]:
    """A peer until the block ends."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "django_project.settings",
        "INTEROP_DATABASE_URL": "sqlite:///unused.db",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }
    with subprocess.Popen(
        [sys.executable, "-m", module],
        env=environment,
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Peer(process)
        finally:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it may have been killed with an order unread
                process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
