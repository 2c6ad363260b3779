"""Workers of both sides in processes of their own, at work until the test ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@contextmanager
def their_worker(url: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The reference's ``ox_worker``."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "django_project.settings",
        "INTEROP_DATABASE_URL": url,
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, "-m", "django", "ox_worker", "--interval", "0.05", *options]
    with _running(subprocess.Popen(command, env=environment, cwd=HERE)) as process:
        yield process


@contextmanager
def our_worker(url: str, folder: Path, app: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """``oxpull-async worker`` over an app of this source."""
    (folder / "our_app.py").write_text(app)
    environment = os.environ | {"OXPULL_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "oxpull_async", "worker", "our_app:ox", *options]
    with _running(subprocess.Popen(command, env=environment, cwd=folder)) as process:
        yield process


@contextmanager
def _running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
