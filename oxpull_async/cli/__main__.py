"""``python -m oxpull_async.cli``."""

from __future__ import annotations

from oxpull_async.cli import main

main()
