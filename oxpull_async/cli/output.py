"""What commands print: a small table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts by name. For people a list is counted if it's long, and left out if it's empty."""
    if as_json:
        print(json.dumps(facts, default=str))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    Console().print(table)


def show_json(facts: Any) -> None:
    """Print them for a program: one line."""
    print(json.dumps(facts, default=str))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows for people. A column whose name ends in ``#`` holds numbers."""
    Console().print(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """The table that ``show_table`` prints."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.rstrip("#"), justify="right" if column.endswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text("-" if value is None else str(value)) for value in row])
    return table


def _words(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)
