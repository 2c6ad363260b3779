"""Sees to it that the tests find PgBouncer: installs it on a Debian-like system where we are root.

    .venv/bin/python -m scripts.ensure_pgbouncer

Elsewhere it says what to install. A missing PgBouncer is a failure on CI (`CI` is set) and a notice on a laptop,
where its tests are not run.
"""

from __future__ import annotations

import os
import shutil

from scripts.ensure_mariadb import apt_get
from tests.joined.pgbouncer import find_pgbouncer


def main() -> None:
    if not find_pgbouncer() and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing pgbouncer by apt-get", flush=True)
        apt_get("update")
        apt_get("install", "--yes", "--no-install-recommends", "pgbouncer")
    if not find_pgbouncer():
        report_missing()


def report_missing() -> None:
    message = (
        "PgBouncer isn't installed, so its tests can't run. "
        "Install it with 'sudo apt-get install pgbouncer' or 'brew install pgbouncer'."
    )
    if os.environ.get("CI"):
        raise SystemExit(message)
    print(f"\n*** {message} ***\n", flush=True)


if __name__ == "__main__":
    main()
