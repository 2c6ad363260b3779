"""Run the reference in a process of its own, since Django's settings hold for a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_django(url: str, *arguments: str) -> str:
    """Run a management command of ``django_project`` against *url*, and return what it printed.

    Raises: AssertionError with the command's own words if it fails.
    """
    return _run(url, "-m", "django", *arguments)


def run_in_django(url: str, code: str) -> str:
    """Run Python code in a process where Django is set up against *url*, and return what it printed.

    Raises: AssertionError with the traceback if it fails.
    """
    return _run(url, "-c", f"import django\ndjango.setup()\n{code}")


def _run(url: str, *arguments: str) -> str:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "django_project.settings",
        "INTEROP_DATABASE_URL": url,
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{arguments} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
