"""Sees to it that the tests find a MariaDB server: installs it on a Debian-like system where we are root.

    .venv/bin/python -m scripts.ensure_mariadb

Elsewhere it says what to install. A missing server is a failure on CI (`CI` is set) and a notice on a laptop,
where the tests of that engine are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.servers.mariadb import find_program

# The core packages bring the server and no service that would start by itself.
PACKAGES = ("mariadb-server-core", "mariadb-client-core")


def main() -> None:
    if not is_installed() and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {' and '.join(PACKAGES)} by apt-get", flush=True)
        apt_get("update")
        apt_get("install", "--yes", "--no-install-recommends", *PACKAGES)
    if not is_installed():
        report_missing()


def is_installed() -> bool:
    return all(find_program(name) for name in ("mariadbd", "mariadb-install-db"))


def apt_get(*words: str) -> None:
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = "-oDPkg::Lock::Timeout=300"
    command = ["apt-get", "-qq", wait, *words]
    answer = subprocess.run(command, env=quietly, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        print(answer.stdout[-2000:] + answer.stderr[-2000:], file=sys.stderr)


def report_missing() -> None:
    message = (
        "MariaDB isn't installed, so its tests can't run. "
        "Install it with 'sudo apt-get install mariadb-server' or 'brew install mariadb'."
    )
    if os.environ.get("CI"):
        raise SystemExit(message)
    print(f"\n*** {message} ***\n", flush=True)


if __name__ == "__main__":
    main()
