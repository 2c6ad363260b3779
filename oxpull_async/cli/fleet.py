"""Several worker processes under one that starts them again when they die."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oxpull_async.cli.children import Child, stop_signals
from oxpull_async.cli.slots import RECYCLED, Done, GiveUp, Restart, Slot, exit_code, in_words
from oxpull_async.cli.vital_signs import touch
from oxpull_async.telemetry import log

_POLL_SECONDS: Final = 0.1
_KILL_SECONDS: Final = 5.0


class Fleet:
    """Runs copies of one command.

    The first signal is passed on, so that tasks may finish; the second too, so
    that they are cancelled, and who is left after five seconds is killed; the
    third kills at once.
    """

    def __init__(
        self, command: Sequence[str], *, processes: int, ends: bool = False, heartbeat_file: Path | None = None
    ) -> None:
        self._command = command
        self._slots = [Slot(index, ends) for index in range(processes)]
        self._children: dict[int, Child] = {}
        self._due = dict.fromkeys(range(processes), 0.0)
        self._heartbeat_file = heartbeat_file
        self._stops = 0
        self._kill_at = float("inf")
        self._code = 0

    def run(self) -> int:
        """Until every process has ended for good; returns the exit code: that of the first that failed, or 0."""
        with stop_signals(self._stop):
            while self._children or (self._due and not self._stops):
                if self._heartbeat_file is not None:
                    touch(Path(f"{self._heartbeat_file}.supervisor"))
                self._start_due()
                self._collect()
                if time.monotonic() >= self._kill_at:
                    self._tell(signal.SIGKILL)
                time.sleep(_POLL_SECONDS)
        return self._code

    def _stop(self) -> None:
        self._stops += 1
        if self._stops >= 2:
            self._kill_at = time.monotonic() + (_KILL_SECONDS if self._stops == 2 else 0.0)
        # Another one than the first: the system would make one of two of a kind that follow closely.
        self._tell(signal.SIGTERM if self._stops == 1 else signal.SIGINT)

    def _tell(self, number: signal.Signals) -> None:
        for child in list(self._children.values()):
            child.send(number)

    def _start_due(self) -> None:
        now = time.monotonic()
        for index in [index for index, due in self._due.items() if due <= now]:
            if not self._stops:
                del self._due[index]
                self._start(self._slots[index])

    def _start(self, slot: Slot) -> None:
        child = Child([*self._command, *self._heartbeat(slot)])
        slot.started_at = time.monotonic()
        self._children[slot.index] = child
        log(
            logging.INFO,
            "worker_process_started",
            f"worker process {slot.index} has the pid {child.pid}",
            slot=slot.index,
            pid=child.pid,
        )
        if self._stops:  # a signal in between has told all others
            child.send(signal.SIGTERM)

    def _heartbeat(self, slot: Slot) -> list[str]:
        if self._heartbeat_file is None:
            return []
        file = Path(f"{self._heartbeat_file}.{slot.index}")
        file.unlink(missing_ok=True)  # of the process before: this one has yet to show that it lives
        return ["--heartbeat-file", str(file)]

    def _collect(self) -> None:
        for index, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[index]
                self._ended(self._slots[index], code)

    def _ended(self, slot: Slot, code: int) -> None:
        if self._stops:
            was_starting = code == -signal.SIGTERM  # it couldn't listen yet, and had claimed nothing
            self._code = self._code or (0 if was_starting else exit_code(code))
            return
        decision = slot.after(code, time.monotonic())
        match decision:
            case Restart(delay):
                self._due[slot.index] = time.monotonic() + delay
                if code:
                    _tell_end(slot, code, f"it's started again in {delay:g} s")
            case GiveUp(last_code):
                _tell_end(slot, code, "another try wouldn't help, so all are stopped")
                self._code = last_code
                self._stop()
            case Done():
                pass


def _tell_end(slot: Slot, code: int, consequence: str) -> None:
    log(
        logging.WARNING,
        "worker_process_recycled" if code == RECYCLED else "worker_process_died",
        f"worker process {slot.index} ended {in_words(code)}; {consequence}",
        slot=slot.index,
        exit_code=exit_code(code),
    )
