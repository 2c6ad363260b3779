"""Loads named SQL statements from ``.sql`` files and compiles them for a driver's placeholders.

A file holds statements, each under ``-- name: some_name`` and a comment that
says why it is shaped as it is, and fragments under ``-- fragment: some_name``
that ``{{some_name}}`` includes; ``_fragments.sql`` is for all files of a
room. A parameter is written ``:name``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final, NoReturn

from oxpull_async.drivers._procedure import Step

_HEADER = re.compile(r"^-- (name|fragment): (\w+)\s*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{\{(\w+)\}\}")
# Quotes and casts are matched first, so that a colon within them is never taken for a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|::|(?<![\w:]):([a-z_][a-z0-9_]*)|%")
_COMMENT = re.compile(r"^[ \t]*--.*\n?", re.MULTILINE)
_NOTHING: Final[Mapping[str, str]] = {}


class Statement:
    """One named statement; calling it with its parameters makes the ``Step`` to yield."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text: str = " ".join(_COMMENT.sub("", text).split())
        self.parameters: frozenset[str] = frozenset(match[1] for match in _TOKEN.finditer(self.text) if match[1])

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"

    def __call__(self, **values: Any) -> Step:
        if values.keys() != self.parameters:
            self._refuse(values)
        return Step(self, values)

    def many(self, rows: list[dict[str, Any]]) -> Step:
        """The statement once for each of ``rows``; it must not return rows."""
        return Step(self, {}, rows)

    @cached_property
    def numeric_dollar(self) -> tuple[str, tuple[str, ...]]:
        """The text with ``$1 …`` and the parameters' names in their order (asyncpg)."""
        order: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            return f"${order.setdefault(match[1], len(order) + 1)}"

        text = _TOKEN.sub(number, self.text)
        return text, tuple(order)

    @cached_property
    def dollar_call(self) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
        """As ``numeric_dollar``, with what takes the values out in their order."""
        text, names = self.numeric_dollar
        if len(names) > 1:
            return text, itemgetter(*names)
        return text, lambda values: [values[name] for name in names]

    @cached_property
    def qmark(self) -> tuple[str, tuple[str, ...]]:
        """The text with ``?``, a name repeated for each of its uses (sqlite3)."""
        return self._positional("?", percent="%")

    @cached_property
    def format(self) -> tuple[str, tuple[str, ...]]:
        """The text with ``%s`` and doubled percent signs (the MySQL drivers, psycopg, Django)."""
        return self._positional("%s", percent="%%")

    def _positional(self, mark: str, *, percent: str) -> tuple[str, tuple[str, ...]]:
        order: list[str] = []

        def place(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0].replace("%", percent)
            order.append(match[1])
            return mark

        text = _TOKEN.sub(place, self.text)
        return text, tuple(order)

    def _refuse(self, values: dict[str, Any]) -> NoReturn:
        missing = sorted(self.parameters - values.keys())
        unknown = sorted(values.keys() - self.parameters)
        raise TypeError(f"statement {self.name}: missing {missing}, unknown {unknown}")


def expanded(text: str, parameters: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The ``format`` text with each tuple among its parameters written out, for drivers that take no tuples."""
    if not any(isinstance(parameter, tuple) for parameter in parameters):
        return text, tuple(parameters)
    first, *others = text.split("%s")
    parts, flat = [first], list[Any]()
    for parameter, part in zip(parameters, others, strict=True):
        several = parameter if isinstance(parameter, tuple) else (parameter,)
        marks = ", ".join(["%s"] * len(several))
        parts += [f"({marks})" if isinstance(parameter, tuple) else marks, part]
        flat += several
    return "".join(parts), tuple(flat)


def load_statements(package: str, file: str, replacing: Mapping[str, str] = _NOTHING) -> dict[str, Statement]:
    """Every statement of ``sql/<file>`` beside ``package``, by name.

    ``replacing`` names fragments in whose place others are included.

    Raises: ValueError at import for a name given twice or an unknown fragment.
    """
    folder = files(package).joinpath("sql")
    shared = folder.joinpath("_fragments.sql").read_text(encoding="utf-8")
    source = shared + "\n" + folder.joinpath(file).read_text(encoding="utf-8")
    fragments: dict[str, str] = {}
    statements: dict[str, Statement] = {}
    for kind, name, body in _sections(source):
        text = _include(body, fragments, file, replacing)
        target: dict[str, Any] = fragments if kind == "fragment" else statements
        if name in target:
            raise ValueError(f"{file}: {kind} {name} is given twice")
        target[name] = _COMMENT.sub("", text).strip() if kind == "fragment" else Statement(name, text)
    return statements


def _sections(source: str) -> list[tuple[str, str, str]]:
    headers = list(_HEADER.finditer(source))
    ends = [header.start() for header in headers[1:]] + [len(source)]
    pairs = zip(headers, ends, strict=True)
    return [(header[1], header[2], source[header.end() : end].strip().rstrip(";")) for header, end in pairs]


def _include(body: str, fragments: dict[str, str], file: str, replacing: Mapping[str, str]) -> str:
    def text(match: re.Match[str]) -> str:
        name = replacing.get(match[1], match[1])
        if name not in fragments:
            raise ValueError(f"{file}: unknown fragment {name}")
        return fragments[name]

    return _FRAGMENT.sub(text, body)
