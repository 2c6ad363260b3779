"""Reads a room's ``schema`` folder: the steps that make its tables, and when each statement applies.

What the orders in the files mean is told at the top of each ``0000_ledger.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

_STATEMENT = re.compile(r"^-- statement[ \t]*$", re.MULTILINE)
_ORDER = re.compile(
    r"^-- (unless table|unless index|if index|only with new table|outside transaction):?[ \t]*(.*)$", re.MULTILINE
)
_COMMENT = re.compile(r"^[ \t]*--.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SchemaStatement:
    """One statement, and the conditions under which it runs."""

    text: str
    unless_table: str | None = None
    unless_index: tuple[str, str] | None = None
    if_index: tuple[str, str] | None = None
    only_with_new_table: str | None = None
    outside_transaction: bool = False


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One file: applied as a whole, then listed in the ledger under its name."""

    name: str
    statements: tuple[SchemaStatement, ...]


def load_steps(package: str, *, lean: bool) -> list[SchemaStep]:
    """The ledger, then the steps in their order; with ``lean``, a ``.lean`` file stands in for its namesake."""
    folder = files(package).joinpath("schema")
    sources = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return [SchemaStep(name, _statements(sources[file])) for name, file in _chosen(sources, lean).items()]


def filled(steps: list[SchemaStep], fill: Callable[[str], str]) -> list[SchemaStep]:
    """The steps with every statement's text filled in."""
    return [
        SchemaStep(step.name, tuple(replace(statement, text=fill(statement.text)) for statement in step.statements))
        for step in steps
    ]


def script(steps: list[SchemaStep]) -> str:
    """The whole schema as one readable SQL script, for those who migrate with a tool of their own."""
    parts = []
    for step in steps:
        parts.append(f"-- {step.name}\n")
        parts.extend(f"{statement.text};\n" for statement in step.statements)
    return "\n".join(parts)


def _chosen(sources: Mapping[str, str], lean: bool) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for file in sorted(sources):
        name, _, rest = file.partition(".")
        has_lean = f"{name}.lean.sql" in sources
        if rest == ("lean.sql" if lean and has_lean else "sql"):
            chosen[name] = file
    return chosen


def _statements(source: str) -> tuple[SchemaStatement, ...]:
    return tuple(_statement(part) for part in _STATEMENT.split(source)[1:])


def _statement(part: str) -> SchemaStatement:
    orders = {match[1]: match[2].strip() for match in _ORDER.finditer(part)}
    return SchemaStatement(
        text=_COMMENT.sub("", part).strip().rstrip(";"),
        unless_table=orders.get("unless table"),
        unless_index=_index(orders.get("unless index")),
        if_index=_index(orders.get("if index")),
        only_with_new_table=orders.get("only with new table"),
        outside_transaction="outside transaction" in orders,
    )


def _index(order: str | None) -> tuple[str, str] | None:
    """A table's name and that of an index of it."""
    if order is None:
        return None
    table, _, index = order.partition(" ")
    return table, index
