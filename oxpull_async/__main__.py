"""``python -m oxpull_async``."""

from __future__ import annotations

from oxpull_async.cli import main

main()
