"""Signals of a worker process: the first drains it, the second cancels, the third ends it there and then."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final

from oxpull_async.cli.log_lines import LogFormat, signal_line
from oxpull_async.runtime.worker import Worker

KILLED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PATIENCE_SECONDS: Final = 2.5


class Signals:
    """Passes signals to a worker for as long as the block lasts.

    They are handled between two bytecodes of the main thread, so that a task
    that blocks the event loop doesn't keep the process alive.
    """

    def __init__(self, worker: Worker, log_format: LogFormat = "text") -> None:
        self._log_format = log_format
        self.received: int = 0
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """0 after an orderly end, 130 after a hurried one."""
        return KILLED if self.received > 1 else 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if self.received == 1:
            self._say("stopping when the running tasks have ended; another signal cancels them")
            self._loop.call_soon_threadsafe(self._worker.stop)
        elif self.received == 2:
            self._say("cancelling the running tasks; another signal ends the process there and then")
            leave_within(_PATIENCE_SECONDS, KILLED)
            self._loop.call_soon_threadsafe(partial(self._worker.stop, at_once=True))
        else:
            os._exit(KILLED)

    def _say(self, words: str) -> None:
        """Past Python's buffers, whose locks the interrupted code may hold."""
        os.write(2, f"{signal_line(words, self._log_format)}\n".encode())


def leave_within(seconds: float, code: int) -> None:
    """End the process after this time, unless it has ended by itself: a thread that hangs would keep it."""
    timer = threading.Timer(seconds, _leave, [code])
    timer.daemon = True
    timer.start()


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
