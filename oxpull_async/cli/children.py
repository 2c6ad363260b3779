"""Worker processes as seen from the one that starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

PARENT_VARIABLE: Final = "OXPULL_PARENT_PID"
"""Tells a worker process to whom it belongs."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A process that runs a command of ours."""

    def __init__(self, command: Sequence[str]) -> None:
        # In a session of its own: Ctrl-C in a terminal goes to all of a session, and would reach it twice.
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "oxpull_async", *command],
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,
        )
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on, if it's still there."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def ended(self, within: float) -> bool:
        """Wait for its end."""
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True


@contextmanager
def stop_signals(receive: Callable[[], None]) -> Iterator[None]:
    """Call this at each signal that asks the process to stop."""

    def handle(number: int, frame: FrameType | None) -> None:
        receive()

    before: dict[int, Any] = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parent_pid() -> int | None:
    """Whose child this process was started as, if it was."""
    value = os.environ.pop(PARENT_VARIABLE, "")  # popped: it isn't true of processes that tasks start
    return int(value) if value.isdigit() else None
