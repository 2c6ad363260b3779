"""Real ASGI servers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx

from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ["uvicorn", "hypercorn", "granian"]
SERVICE = "tests.asgi.service:app"


class Service:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path, output: Path) -> None:
        self.process = process
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self._log = log
        self._output = output

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the service has written down of one kind."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def said(self) -> str:
        """What the server has printed."""
        return self._output.read_text()

    async def has_started(self, workers: int = 1) -> None:
        def started() -> None:
            assert self.process.poll() is None, self.said()
            assert len(self.events("started")) >= workers, self.said()

        async def answers() -> None:
            try:
                assert (await self.client.get("/health")).status_code == 200
            except httpx.TransportError as error:
                raise AssertionError(str(error)) from error

        await eventually(started, within=60)
        await eventually(answers, within=60)

    async def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 30) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        return await self.has_ended(within)

    async def has_ended(self, within: float = 30) -> int:
        async def ended() -> None:
            assert self.process.poll() is not None

        await eventually(ended, within)
        assert self.process.returncode is not None
        return self.process.returncode

    def left(self) -> list[Any]:
        """What the lifespans that ended have left behind."""
        return [event for event in self.events("stopped") if event["tasks"] or event["threads"] or event["is_open"]]


@asynccontextmanager
async def served(
    server: str, url: str, folder: Path, *options: str, app: str = SERVICE, directory: Path | None = None
) -> AsyncIterator[Service]:
    """A server over the service, with all its processes ended at the block's end."""
    port, log, output = _free_port(), folder / "service.log", folder / "server.out"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(directory or ROOT)]),
        "OXPULL_DATABASE_URL": url,
        "SERVICE_LOG": str(log),
    }
    with output.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", server, *_arguments(server, app, port), *options],
            cwd=directory or ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    service = Service(process, port, log, output)
    try:
        yield service
    finally:
        with anyio.CancelScope(shield=True):
            await service.client.aclose()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _arguments(server: str, app: str, port: int) -> Sequence[str]:
    match server:
        case "uvicorn":
            return [app, "--host", "127.0.0.1", "--port", str(port)]
        case "hypercorn":
            return [app, "--bind", f"127.0.0.1:{port}"]
        case _:
            return ["--interface", "asgi", "--host", "127.0.0.1", "--port", str(port), app]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
