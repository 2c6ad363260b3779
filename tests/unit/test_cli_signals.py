"""What a worker process does at its first, second and third signal."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from oxpull_async.cli import signals
from oxpull_async.cli.signals import KILLED, Signals


class Stops:
    """A worker that notes how it was told to stop."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.news = anyio.Event()

    def stop(self, *, at_once: bool = False) -> None:
        self.told.append(at_once)
        self.news.set()


async def test_the_third_signal_leaves_without_asking_anybody(monkeypatch: pytest.MonkeyPatch):
    left: list[int] = []
    later: list[tuple[float, int]] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(signals, "leave_within", lambda seconds, code: later.append((seconds, code)))
    worker = Stops()

    with Signals(worker) as received:  # type: ignore[arg-type]
        for code, at_once in ((0, False), (KILLED, True)):
            signal.raise_signal(signal.SIGTERM)
            await worker.news.wait()
            worker.news = anyio.Event()
            assert (worker.told[-1], received.exit_code, left) == (at_once, code, [])
        signal.raise_signal(signal.SIGINT)

    assert left == [KILLED]
    assert [code for _, code in later] == [KILLED]
