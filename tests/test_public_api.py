"""The public face: what is exported is what `__all__` says, and every error is there."""

from __future__ import annotations

import inspect
import re

import pytest

import oxpull_async
from oxpull_async import exceptions

ERRORS = {
    name: value
    for name, value in vars(exceptions).items()
    if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == exceptions.__name__
}


def test_what_is_exported_is_what_all_says():
    public = {
        name for name, value in vars(oxpull_async).items() if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert sorted(public) == sorted(oxpull_async.__all__)


def test_the_names_are_sorted_and_given_once():
    assert oxpull_async.__all__ == sorted(set(oxpull_async.__all__))


def test_a_star_import_brings_all_of_them():
    namespace: dict[str, object] = {}
    exec("from oxpull_async import *", namespace)

    assert namespace.keys() - {"__builtins__"} == set(oxpull_async.__all__)


def test_every_public_name_says_what_it_is():
    undocumented = [name for name in oxpull_async.__all__ if not inspect.getdoc(getattr(oxpull_async, name))]

    assert undocumented == []


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_exported_and_drawn_in_the_tree(name: str):
    assert getattr(oxpull_async, name) is ERRORS[name]
    assert name in drawn_tree()


def test_the_tree_is_drawn_as_it_is():
    for name, parent in drawn_tree().items():
        assert (ERRORS[parent] if parent else Exception) in ERRORS[name].__bases__, name


def test_the_tree_draws_nothing_else():
    assert drawn_tree().keys() == ERRORS.keys()


def test_every_error_descends_from_one():
    assert all(issubclass(error, oxpull_async.OxpullError) for error in ERRORS.values())


def drawn_tree() -> dict[str, str | None]:
    """Each error in the module's docstring, with the one above it."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (exceptions.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│├└─ ])*)(\w+)(?:\s|$)", line)
        if not found or found[2] not in ERRORS:
            assert "──" not in line, f"drawn, but not there: {line}"
            continue
        depth = len(found[1])
        path = [(level, name) for level, name in path if level < depth]
        parents[found[2]] = path[-1][1] if path else None
        path.append((depth, found[2]))
    return parents
