"""Processes that are to be killed in the middle of something."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import anyio

Errand: TypeAlias = Callable[..., Coroutine[Any, Any, None]]
"""A function of a module, with arguments that can be pickled. It kills its own process, or comes to its end."""


class Doomed:
    """Forks processes that run an errand each: one at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, errand: Errand, *arguments: Any) -> bool:
        """Whether it came to be killed."""
        self.start(errand, *arguments)
        return self.ended()

    def start(self, errand: Errand, *arguments: Any) -> int:
        """The id of the process."""
        self._pipe.send((errand, arguments))
        return self._told()

    def ended(self) -> bool:
        """Whether it was killed, once it has ended."""
        status = self._told()
        assert status in (0, -signal.SIGKILL), status
        return bool(status)

    def _told(self) -> int:
        assert self._pipe.poll(60), "a doomed process neither died nor finished"
        told: int = self._pipe.recv()
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def die() -> None:
    """End this process at once, as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(pipe: Connection) -> None:
    """Forks, for a fork costs less than a new interpreter; here there is neither a loop nor a thread to fork."""
    while True:
        errand, arguments = pipe.recv()
        child = os.fork()
        if not child:
            _run(errand, arguments)
        pipe.send(child)
        pipe.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(errand: Errand, arguments: tuple[Any, ...]) -> None:
    code = 1
    try:
        anyio.run(errand, *arguments)
        code = 0
    finally:
        os._exit(code)
