"""The loader of SQL files: what is a parameter, what is included, and how a driver's placeholders are written."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oxpull_async.drivers._statements import Statement, load_statements

ROOMS = ["postgres", "sqlite", "mysql"]
Load = Callable[..., dict[str, Statement]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Loads statements from the text of a file, and that of the room's fragments."""
    package = tmp_path / "proof_room"
    (package / "sql").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def load(text: str, fragments: str = "") -> dict[str, Statement]:
        (package / "sql" / "_fragments.sql").write_text(fragments)
        (package / "sql" / "some.sql").write_text(text)
        return load_statements("proof_room", "some.sql")

    yield load
    sys.modules.pop("proof_room", None)


def statement(text: str) -> Statement:
    return Statement("some", text)


def test_a_parameter_is_a_name_after_a_colon():
    found = statement("SELECT :a, :b_2 FROM t WHERE x=:a AND y = ANY(:c)")

    assert found.parameters == {"a", "b_2", "c"}
    assert found.numeric_dollar == ("SELECT $1, $2 FROM t WHERE x=$1 AND y = ANY($3)", ("a", "b_2", "c"))
    assert found.qmark == ("SELECT ?, ? FROM t WHERE x=? AND y = ANY(?)", ("a", "b_2", "a", "c"))
    assert found.format == ("SELECT %s, %s FROM t WHERE x=%s AND y = ANY(%s)", ("a", "b_2", "a", "c"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':a'", "SELECT 'it''s :a'", 'SELECT ":a"', "SELECT `:a`", "SELECT x::text", "SELECT x::a", "SELECT a:b",
        "SELECT '::'", "SELECT t.x::varchar(10)",
    ],
)  # fmt: skip
def test_quotes_and_casts_hold_no_parameters(text: str):
    found = statement(text)

    assert found.parameters == frozenset()
    assert found.numeric_dollar == found.qmark == found.format == (text, ())


def test_a_cast_may_follow_a_parameter():
    assert statement("SELECT :ids::uuid[], :x::text::jsonb").numeric_dollar == (
        "SELECT $1::uuid[], $2::text::jsonb",
        ("ids", "x"),
    )


def test_a_percent_sign_is_doubled_where_the_driver_would_take_it_for_its_own():
    found = statement("SELECT :a % 2 WHERE x LIKE '100%' AND \"%\" = `%`")

    assert found.format[0] == "SELECT %s %% 2 WHERE x LIKE '100%%' AND \"%%\" = `%%`"
    assert found.qmark[0] == "SELECT ? % 2 WHERE x LIKE '100%' AND \"%\" = `%`"
    assert found.numeric_dollar[0] == "SELECT $1 % 2 WHERE x LIKE '100%' AND \"%\" = `%`"
    assert found.format[0] % ("1",) == "SELECT 1 % 2 WHERE x LIKE '100%' AND \"%\" = `%`"


def test_calling_a_statement_makes_a_step_and_wrong_names_are_refused():
    found = statement("SELECT :a, :b")

    step = found(a=1, b=None)
    assert (step.statement, step.values, step.many) == (found, {"a": 1, "b": None}, None)
    assert found.many([{"a": 1, "b": 2}]).many == [{"a": 1, "b": 2}]
    with pytest.raises(TypeError, match=r"some: missing \['b'\], unknown \['c'\]"):
        found(a=1, c=2)
    with pytest.raises(TypeError, match="missing"):
        found()


def test_statements_are_found_by_name_without_their_comments(load: Load):
    found = load(
        "-- name: first\n-- Why it is so: a :colon here is no parameter.\nSELECT 1\n  FROM t; \n\n"
        "-- name: second\n-- Why.\nSELECT\n-- within\n:a;\n"
    )

    assert {name: made.text for name, made in found.items()} == {"first": "SELECT 1 FROM t", "second": "SELECT :a"}
    assert found["second"].parameters == {"a"}
    assert repr(found["first"]) == "<Statement first>"


def test_fragments_are_included(load: Load):
    found = load(
        "-- fragment: mine\n-- Why.\nx = :x\n-- name: some\n-- Why.\nSELECT {{columns}} FROM t WHERE {{mine}}\n",
        "-- fragment: columns\n-- Why.\nt.a,\nt.b\n",
    )

    assert found["some"].text == "SELECT t.a, t.b FROM t WHERE x = :x"
    assert found["some"].parameters == {"x"}
    assert list(found) == ["some"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\n-- Why.\nSELECT 1\n-- name: a\n-- Why.\nSELECT 2\n", "name a is given twice"),
        ("-- name: a\n-- Why.\nSELECT {{nowhere}}\n", "unknown fragment nowhere"),
        ("-- fragment: a\nx\n-- fragment: a\ny\n", "fragment a is given twice"),
    ],
)
def test_mistakes_in_a_file_are_told_at_import(load: Load, text: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        load(text)


@pytest.mark.parametrize("room", ROOMS)
def test_every_statement_of_a_room_says_why(room: str):
    folder = Path(__file__).parents[2] / "oxpull_async" / "drivers" / room / "sql"
    for file in folder.glob("*.sql"):
        heads = re.findall(r"^-- name: (\w+)\n(.*)$", file.read_text(), re.MULTILINE)
        assert [name for name, first in heads if not re.match(r"-- \S", first)] == [], file.name
