"""What commands print: a small table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def show(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts by name. For people a list is counted if it's long, and left out if it's empty."""
    if as_json:
        print(json.dumps(facts, default=str))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    Console().print(table)


def _words(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)
