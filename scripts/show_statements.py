"""Shows statements of the `.sql` files beside one another in docs/explanation/dialects.md, while the site is built.

A hook of MkDocs. The page names them, one engine to a line:

    <!-- statements
    PostgreSQL: postgres/unique insert_unique
    SQLite: sqlite/unique insert_lock delete_stale_locks
    -->
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

_ROOMS = Path(__file__).resolve().parent.parent / "oxpull_async" / "drivers"
_PLACE = re.compile(r"<!-- statements\n(?P<lines>.*?)-->", re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return _PLACE.sub(lambda place: "\n".join(map(_tab, place["lines"].splitlines())), markdown)


def statement(file: str, name: str) -> str:
    """A statement with its reason, as it's written in the file. Raises: LookupError."""
    room, _, subject = file.partition("/")
    text = (_ROOMS / room / "sql" / f"{subject}.sql").read_text()
    found = re.search(rf"^-- name: {name}\n(.*?)(?=^-- name: |^-- fragment: |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"{file}.sql has no statement {name}")
    return found[1].strip()


def _tab(line: str) -> str:
    engine, _, rest = line.partition(": ")
    file, *names = rest.split()
    code = "\n\n".join(statement(file, name) for name in names)
    block = f'```sql title="{file}.sql"\n{code}\n```'
    return f'=== "{engine}"\n\n{textwrap.indent(block, "    ")}\n'
