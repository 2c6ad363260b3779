"""Makes a virtual environment and installs the project, editable, with the extras and groups it's told.

    python scripts/make_venv.py .venv --extras all --groups dev
    python scripts/make_venv.py .venv-interop --minimum 3.12 --extras all --groups test interop

Needs nothing but the standard library and pip. `--stamp` names a file in it that is written last:
make's sign that the set is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def main() -> None:
    options = parsed_options()
    minimum = tuple(int(part) for part in options.minimum.split("."))
    interpreter = find_python(minimum)
    if interpreter is None:
        refuse(options.folder, options.minimum)
        return
    python = make_venv(options.folder, interpreter, minimum)
    install(python, options.extras, options.groups)
    (options.folder / options.stamp).touch()


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes a virtual environment with the project in it.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minimum", default="3.11", help="the oldest Python that will do")
    parser.add_argument("--extras", default="", help="comma separated")
    parser.add_argument("--groups", nargs="*", default=[])
    parser.add_argument("--stamp", default=".installed")
    return parser.parse_args()


def find_python(minimum: tuple[int, ...]) -> str | None:
    """The running interpreter if it's new enough, else the first candidate that really runs and is."""
    return next((python for python in candidates() if version_of(python) >= minimum), None)


def candidates() -> Iterator[str]:
    yield sys.executable
    for name in ("python3.14", "python3.13", "python3.12"):
        if found := shutil.which(name):
            yield found
    for python in sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"), reverse=True):
        yield str(python)


def version_of(python: str) -> tuple[int, ...]:
    """(3, 13) and the like; () where it doesn't run, as a version manager's shim may."""
    question = "import sys, venv; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(part) for part in answer.stdout.split()) if answer.returncode == 0 else ()


def refuse(folder: Path, minimum: str) -> None:
    message = f"No Python {minimum} or newer was found, so {folder} can't be made."
    if minimum == "3.11" or os.environ.get("CI"):
        raise SystemExit(message)
    print(f"\n*** {message} ***\n", flush=True)


def make_venv(folder: Path, interpreter: str, minimum: tuple[int, ...]) -> str:
    python = str(folder / "bin" / "python")
    if version_of(python) >= minimum:
        return python
    print(f"making {folder} with {interpreter}", flush=True)
    venv = [interpreter, "-m", "venv", "--clear", str(folder)]
    if subprocess.run(venv, capture_output=True, check=False).returncode != 0:
        # Debian keeps ensurepip in a package of its own; pip can install itself from outside.
        subprocess.run([*venv, "--without-pip"], check=True)
        subprocess.run([interpreter, "-m", "pip", "--python", python, "install", "-q", "pip"], check=True)
    return python


def install(python: str, extras: str, groups: list[str]) -> None:
    project = f".[{extras}]" if extras else "."
    what = " + ".join([project, *groups])
    print(f"installing {what} (a minute or two the first time)", flush=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True, cwd=PROJECT)  # older ones know no groups
    chosen = [word for group in groups for word in ("--group", group)]
    subprocess.run([*pip, "--editable", project, *chosen], check=True, cwd=PROJECT)


if __name__ == "__main__":
    main()
