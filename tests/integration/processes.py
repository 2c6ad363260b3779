"""The command line in a process of its own, over tasks that the test writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "oxpull_async"]

APP = """
import asyncio
import threading

from oxpull_async import Oxpull

ox = Oxpull(lease=1)


def begin():
    open("begun", "a").close()


@ox.task
async def quick(number):
    return number


@ox.task(max_attempts=1)
async def hold():
    begin()
    await asyncio.Event().wait()


@ox.task
async def nap():
    begin()
    await asyncio.sleep(0.5)
    return "rested"


@ox.task
def hang():
    begin()
    threading.Event().wait()


@ox.task
async def block():
    begin()
    threading.Event().wait()


@ox.task(backoff=0, max_attempts=5)
async def failing():
    raise ValueError("as always")
"""


def environment(database: str) -> dict[str, str]:
    """What the process is told of its surroundings."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OXPULL_DATABASE_URL": database}


class WorkerProcess:
    """A worker over ``APP``."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stderr = None if process.stderr is None else BufferedByteReceiveStream(process.stderr)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    async def exit_code(self, *, within: float = 20) -> int:
        """The exit code once the process has ended by itself; negative for a signal."""
        with anyio.fail_after(within):
            async for _ in self._lines():
                pass
            return await self._process.wait()

    async def says(self, words: str, *, within: float = 20) -> None:
        """Wait until the process has said this on stderr."""
        with anyio.fail_after(within):
            async for line in self._lines():
                if words in line:
                    return
        raise AssertionError(f"the process ended without having said {words!r}")

    async def _lines(self) -> AsyncIterator[str]:
        """What it says from now on, shown in the output of a failed test."""
        while self._stderr is not None:
            try:
                line = (await self._stderr.receive_until(b"\n", 1_000_000)).decode()
            except (anyio.IncompleteRead, anyio.EndOfStream):
                return
            print(line)
            yield line


async def until_begun(folder: Path) -> None:
    """Wait until the function of a task of ``APP`` has begun: a row is RUNNING earlier, once it's claimed ahead."""
    await eventually((folder / "begun").exists, within=30)


def write_app(folder: Path, source: str = APP) -> None:
    """Put an app where a worker process finds it."""
    (folder / "queue_app.py").write_text(source)


@asynccontextmanager
async def worker_process(
    folder: Path, database: str, *options: str, quiet: bool = False
) -> AsyncIterator[WorkerProcess]:
    """A worker that is killed at the end of the block, if it's still there; a quiet one is not listened to."""
    if not (folder / "queue_app.py").exists():
        write_app(folder)
    process = await anyio.open_process(
        [*COMMAND, "worker", "queue_app:ox", *options],
        cwd=folder,
        env=environment(database),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else subprocess.PIPE,
    )
    async with process:
        try:
            yield WorkerProcess(process)
        finally:
            if process.returncode is None:
                process.kill()
