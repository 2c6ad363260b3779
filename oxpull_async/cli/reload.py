"""A worker process that is started anew whenever source files change, for development."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence
from typing import Final

from oxpull_async.cli.children import Child, stop_signals
from oxpull_async.cli.slots import exit_code, in_words
from oxpull_async.cli.sources import Sources
from oxpull_async.telemetry import log

_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 2.0


class Reloading:
    """Runs one command, and again when a file has changed.

    On a change tasks have two seconds to finish, then they are cancelled. A
    process that ends by itself is started again at the next change. Signals
    are passed on; after that nothing is started any more.
    """

    def __init__(self, command: Sequence[str], sources: Sources) -> None:
        self._command = command
        self._sources = sources
        self._child: Child | None = None
        self._stops = 0

    def run(self) -> int:
        """Until stopped; returns the exit code of the last process."""
        with stop_signals(self._stop):
            while True:
                self._child = child = Child(self._command)
                if self._stops:
                    child.send(signal.SIGTERM)
                self._until_change(child)
                if self._stops:
                    while not child.ended(_POLL_SECONDS):
                        pass
                    return exit_code(child.poll() or 0)
                log(logging.INFO, "sources_changed", "source files have changed: the worker is started anew")
                _end(child)

    def _stop(self) -> None:
        self._stops += 1
        if self._child is not None:
            self._child.send((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)[min(self._stops, 3) - 1])

    def _until_change(self, child: Child) -> None:
        look_at = 0.0
        has_told = False
        while not self._stops:
            code = child.poll()
            if code is not None and not has_told:
                has_told = True
                log(
                    logging.INFO,
                    "worker_process_ended",
                    f"the worker ended {in_words(code)}; it's started again when a file changes",
                    exit_code=exit_code(code),
                )
            if time.monotonic() >= look_at:
                if self._sources.have_changed():
                    return
                look_at = time.monotonic() + _LOOK_SECONDS
            time.sleep(_POLL_SECONDS)


def _end(child: Child) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        child.send(number)
        if child.ended(_PATIENCE_SECONDS):
            return
