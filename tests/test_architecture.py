"""The shape of the package: small modules, small functions, imports one way, rooms that mirror one another.

The layers themselves are a contract of import-linter (`make check`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oxpull_async

PACKAGE = Path(__file__).resolve().parent.parent / "oxpull_async"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = ["postgres", "sqlite", "mysql"]

LONGEST_MODULE = 400
LONGEST_FUNCTION = 50
# Names that say nothing, so that everything ends up there.
BANNED = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
# The layers that may use the package by its public face.
ABOVE_THE_FACE = {"cli", "integrations", "testing"}
# Statements of one room alone, each with its reason.
ONLY_THERE: dict[str, set[str]] = {
    # Notifications are PostgreSQL's.
    "postgres": {"wakeups.sql"},
    "sqlite": set(),
    # It reads before it inserts in a caller's transaction, its migration lock and catalogue are MySQL's own, and its
    # procedures need statements of their own to begin, and to fall back from a wait.
    "mysql": {"joined.sql", "migrations.sql", "transactions.sql"},
}

ANNOTATED = (ast.AnnAssign, ast.AsyncFunctionDef, ast.FunctionDef)

every_module = pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))


@every_module
def test_a_module_is_read_in_one_sitting(module: Path):
    assert len(module.read_text().splitlines()) <= LONGEST_MODULE


@every_module
def test_a_function_fits_a_screen(module: Path):
    too_long = [
        f"{function.name} ({length} lines)"
        for function in functions_of(module)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    ]
    assert not too_long


@every_module
def test_a_name_says_what_is_inside(module: Path):
    words = set(module.relative_to(PACKAGE).with_suffix("").parts)
    assert not {word.strip("_") for word in words} & BANNED


@every_module
def test_annotations_are_not_evaluated(module: Path):
    annotated = any(isinstance(node, ANNOTATED) for node in ast.walk(ast.parse(module.read_text())))
    assert not annotated or "__future__" in set(imports_of(module))


@every_module
def test_nothing_below_it_imports_the_public_face(module: Path):
    layer = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if layer not in ABOVE_THE_FACE | {"__init__"}:
        assert "oxpull_async" not in set(imports_of(module))


@pytest.mark.parametrize("room", ROOMS[1:])
def test_the_rooms_of_the_drivers_mirror_one_another(room: str):
    # What a room's driver needs for itself alone is in modules with an underscore.
    assert names_in(room, "[!_]*.py") == names_in("postgres", "[!_]*.py")
    assert "_rows.py" in names_in(room, "*.py")


@pytest.mark.parametrize("room", ROOMS[1:])
def test_the_rooms_have_the_same_statement_files(room: str):
    here, there = (names_in(name, "sql/*.sql") - ONLY_THERE[name] for name in (room, "postgres"))
    assert here == there


def test_no_statement_may_run_a_limited_subquery_several_times():
    # PostgreSQL may join IN (SELECT … LIMIT …) with the table, and read it anew for each row: then it finds others.
    limited = re.compile(r"\bIN\s*\(\s*SELECT\b(?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*?\bLIMIT\b")
    assert limited.search("DELETE FROM a WHERE id IN (SELECT id FROM a WHERE EXISTS (SELECT f(1)) LIMIT 2)")

    for file in (PACKAGE / "drivers/postgres/sql").glob("*.sql"):
        assert not limited.search(re.sub("--.*", "", file.read_text())), f"use = ANY(ARRAY(…)) in {file.name}"


@every_module
def test_the_time_of_day_is_read_in_one_place(module: Path):
    # Elsewhere it would be another time than the one that a test has travelled to.
    if module.name != "clock.py":
        assert not times_read_in(ast.parse(module.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "datetime.now(UTC)",
        "datetime.utcnow()",
        "datetime.datetime.today()",
        "date.today()",
        "time.time()",
        "time.time_ns",
    ],
)
def test_no_way_of_reading_the_time_is_overlooked(source: str):
    assert times_read_in(ast.parse(source)) == [source.removesuffix("()").removesuffix("(UTC)")]


def test_what_is_imported_from_time_tells_no_time_of_day():
    from_time = {
        alias.name
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    assert from_time <= {"monotonic", "perf_counter", "sleep"}


def test_no_public_name_hides_a_package():
    # `import oxpull_async.verb.module as name` would find the function.
    inside = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert not inside & set(oxpull_async.__all__)


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()


def names_in(room: str, pattern: str) -> set[str]:
    return {path.name for path in (PACKAGE / "drivers" / room).glob(pattern)}


def times_read_in(tree: ast.AST) -> list[str]:
    names = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [name for name in names if re.fullmatch(r"(.*\.)?(date(time)?\.(now|utcnow|today)|time\.time(_ns)?)", name)]


def functions_of(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imports_of(module: Path) -> Iterator[str]:
    """Modules that are imported, or imported from, by their absolute names."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield resolved(module, node)


def resolved(module: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = [PACKAGE.name, *module.relative_to(PACKAGE).parent.parts]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
