"""Arguments and results as JSON, and what is refused before any SQL."""

from __future__ import annotations

import collections
import datetime
import enum
import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxpull_async.core.arguments import (
    MAX_PAYLOAD_BYTES,
    encode,
    normalize,
    prepare_arguments,
    prepare_result,
    refuse_unstorable,
)
from oxpull_async.core.storable import MAX_NESTING, find_unstorable
from oxpull_async.exceptions import InvalidArguments

PATH = "app.tasks.send"
TOO_LONG = 10**308

text = st.text(st.characters(codec=None, exclude_categories=()), max_size=8) | st.sampled_from(
    [
        "NaN",
        "\\ud800",
        "\\\ud83d\ude00",
        "\ud83d",
        "\udc00\ud83d",
        "[[[[",
        "a\0",
        "\N{GRINNING FACE}",
        "\\u0000",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary(max_size=4)
keys = text | st.integers() | st.floats() | st.booleans() | st.none() | st.binary(max_size=3)


def dictionaries(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    """Without a text and its bytes: the later one hides the earlier, whose value is refused all the same."""
    return st.dictionaries(keys, inner, max_size=4).filter(_has_each_text_once)


def _has_each_text_once(value: dict[Any, Any]) -> bool:
    names = {key.decode(errors="surrogateescape") if isinstance(key, bytes) else key for key in value}
    return len(names) == len(value)


values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(collections.deque)
        | dictionaries(inner)
        | dictionaries(inner).map(types.MappingProxyType)
    ),
    max_leaves=12,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def refusal(*args: object, **kwargs: object) -> str:
    with pytest.raises(InvalidArguments) as caught:
        prepare_arguments(PATH, args, kwargs)
    return str(caught.value)


def database_takes(written: str) -> bool:
    """What all engines agree on, told from the JSON text alone and not by the code under test."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    pairs: list[Any] = []
    try:
        json.loads(written, parse_constant=refuse, object_pairs_hook=lambda found: pairs.append(found))
        whole = [*pairs, json.loads(written)]
        raw = json.dumps(whole, ensure_ascii=False)
        raw.encode("utf-8")
    except ValueError:
        return False
    return "\\u0000" not in raw.replace("\\\\", "")


def test_arguments_become_the_texts_a_django_process_would_write() -> None:
    prepared = prepare_arguments(PATH, (1, "é😀", {"bb": 1.5, "a": None, 10: 1}), {"flag": True})

    assert prepared.args_json == '[1, "\\u00e9\\ud83d\\ude00", {"bb": 1.5, "a": null, "10": 1}]'
    assert prepared.kwargs_json == '{"flag": true}'


def test_arguments_read_as_a_reader_of_the_row_gets_them() -> None:
    prepared = prepare_arguments(PATH, ((1, 2), {3: b"x"}), {"to": {"a": range(2)}})

    assert prepared.args == [[1, 2], {"3": "x"}]
    assert prepared.kwargs == {"to": {"a": [0, 1]}}


def test_no_arguments_are_an_empty_list_and_an_empty_object() -> None:
    prepared = prepare_arguments(PATH, (), {})

    assert (prepared.args_json, prepared.kwargs_json) == ("[]", "{}")
    assert prepared.args is not prepare_arguments(PATH, (), {}).args


def test_a_caller_who_changes_a_value_later_changes_nothing() -> None:
    mine = {"items": [1]}
    prepared = prepare_arguments(PATH, (mine,), {"again": mine})

    mine["items"].append(2)

    assert prepared.args == [{"items": [1]}]
    assert prepared.kwargs == {"again": {"items": [1]}}


@settings(deadline=None, max_examples=400)
@given(st.lists(values, max_size=4), st.dictionaries(text, values, max_size=3))
def test_exactly_what_every_database_takes_is_accepted(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        expected = [encode(args), encode(kwargs)]
        storable = all(database_takes(written) for written in expected)
    except ValueError:
        storable = False

    if storable:
        prepared = prepare_arguments(PATH, args, kwargs)
        assert [prepared.args_json, prepared.kwargs_json] == expected
        assert [prepared.args, prepared.kwargs] == [json.loads(written) for written in expected]
    else:
        with pytest.raises(InvalidArguments):
            prepare_arguments(PATH, args, kwargs)


@settings(deadline=None)
@given(values)
def test_a_result_is_refused_exactly_where_an_argument_would_be(value: Any) -> None:
    found = find_unstorable(value)

    if found is None:
        assert prepare_result(value) == (None if value is None else encode(value))
    else:
        with pytest.raises((TypeError, ValueError)):
            prepare_result(value)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("nan"), "nan isn't JSON"),
        (float("inf"), "inf isn't JSON"),
        (float("-inf"), "-inf isn't JSON"),
        ("a\0b", "a NUL character"),
        (b"a\0b", "a NUL character"),
        ("\ud800", "a lone surrogate"),
        ("\udc00\ud83d", "a lone surrogate"),
        ("\\\ud83d", "a lone surrogate"),
        ({"a\0": 1}, "in this key a NUL character"),
        ({"\udfff": 1}, "in this key a lone surrogate"),
        ({b"\xff": 1}, "in this key bytes are stored as text"),
        ({TOO_LONG: 1}, "in this key an integer of more than 308 digits"),
        ({1: float("nan"), "1": 2}, "nan isn't JSON"),
        (TOO_LONG, "an integer of more than 308 digits"),
        (-TOO_LONG, "an integer of more than 308 digits"),
        (b"\xff", "bytes are stored as text, and these aren't UTF-8"),
        ({1, 2}, "a value of type set can't be stored as JSON"),
        (datetime.date(2026, 1, 1), "a value of type datetime.date can't be stored as JSON"),
        ({(1, 2): 3}, "a key of type tuple can't be stored as JSON"),
        ({datetime.date(2026, 1, 1): 3}, "a key of type datetime.date can't be stored as JSON"),
        (object(), "a value of type object can't be stored as JSON"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_some_database_would_refuse_is_refused(value: object, complaint: str) -> None:
    assert complaint in refusal(value)
    assert complaint in refusal(x=value)
    with pytest.raises((TypeError, ValueError), match="return value") as caught:
        prepare_result(value)
    assert complaint in str(caught.value)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "Infinity",
        "\\u0000",
        "\\ud800",
        "\ud83d\ude00",
        "\\\ud83d\ude00",
        "\N{GRINNING FACE}",
        "[" * 100,
        {float("nan"): 1},
        [[1]] * 100,
        10**307,
        -(10**307),
        {1: "a", "1": "b"},
        -0.0,
        1e16,
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_value_that_only_looks_like_trouble_is_accepted(value: object) -> None:
    prepared = prepare_arguments(PATH, (value,), {})

    assert prepared.args == json.loads(json.dumps([value]))
    assert prepare_result(value) == json.dumps(value)


@pytest.mark.parametrize(
    ("args", "kwargs", "place"),
    [
        ((1, float("nan")), {}, "argument 2 of app.tasks.send: nan"),
        ((1, {"a": [0, 1, 2, {1}]}), {}, 'argument 2["a"][3] of app.tasks.send: a value of type set'),
        ((), {"x": {"a": {1: ["\0"]}}}, "keyword argument 'x'[\"a\"][1][0] of app.tasks.send: a NUL"),
        ((), {"x\0": 1}, "the name of keyword argument 'x\\x00' of app.tasks.send: a NUL"),
        (({"k" * 200: {1}},), {}, f'argument 1["{"k" * 79}…] of app.tasks.send: a value of type set'),
    ],
)
def test_a_refusal_names_the_place(args: tuple[Any, ...], kwargs: dict[str, Any], place: str) -> None:
    assert refusal(*args, **kwargs).startswith(place)


def test_a_refusal_is_a_type_error_and_a_value_error() -> None:
    with pytest.raises(TypeError):
        prepare_arguments(PATH, ({1},), {})
    with pytest.raises(ValueError, match="nan"):
        refuse_unstorable(float("nan"), "argument 1", PATH)


def test_a_result_of_a_wrong_type_is_a_type_error_and_a_wrong_value_a_value_error() -> None:
    with pytest.raises(TypeError, match=r'^return value\["a"\]\[1\]: a value of type set'):
        prepare_result({"a": [0, {1}]})
    with pytest.raises(ValueError, match=r"^return value\[0\]: nan"):
        prepare_result([float("nan")])


def test_a_result_of_none_is_no_text_at_all() -> None:
    assert prepare_result(None) is None
    assert prepare_result([None]) == "[null]"


def test_as_many_levels_as_every_database_takes_are_accepted() -> None:
    prepared = prepare_arguments(PATH, (nested(MAX_NESTING - 1),), {})

    assert prepared.args == [nested(MAX_NESTING - 1)]
    assert prepare_result(nested(MAX_NESTING)) == json.dumps(nested(MAX_NESTING))


@pytest.mark.parametrize("levels", [MAX_NESTING, 200, 100_000])
def test_more_levels_than_that_are_refused(levels: int) -> None:
    assert "nested more than 31 levels deep" in refusal(nested(levels))
    with pytest.raises(ValueError, match="nested more than 31 levels deep"):
        prepare_result(nested(levels + 1))


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append({"again": circle})

    assert "or contains itself" in refusal(circle)


@pytest.mark.parametrize("bound", [0, 640])
def test_integers_are_bounded_alike_whatever_the_interpreter_bounds(bound: int) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(bound)
    try:
        assert "more than 308 digits" in refusal(10**700)
        assert "more than 308 digits" in refusal(["a" * 500, -TOO_LONG])
        assert prepare_arguments(PATH, (TOO_LONG - 1, 1 - TOO_LONG, "1" * 1000), {}).args[0] == TOO_LONG - 1
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("offset", range(31))
def test_an_integer_that_is_too_long_is_noticed_wherever_it_stands(offset: int) -> None:
    assert "more than 308 digits" in refusal("x" * offset, TOO_LONG)


def test_as_much_as_a_packet_holds_is_accepted_and_a_byte_more_refused() -> None:
    overhead = len('[""]{}') + 2
    most = "x" * (MAX_PAYLOAD_BYTES - overhead)

    assert len(prepare_arguments(PATH, (most,), {}).args[0]) == len(most)
    assert "pass a reference to it" in refusal(most + "x")
    with pytest.raises(ValueError, match="return value: .* pass a reference to it"):
        prepare_result(most + "x" * overhead)


def test_a_result_is_measured_as_it_is_sent() -> None:
    quotes = MAX_PAYLOAD_BYTES // 8 - 1

    assert prepare_result('"' * quotes) is not None
    with pytest.raises(ValueError, match="return value: .* pass a reference to it"):
        prepare_result('"' * (quotes + 1))


def test_what_a_driver_escapes_counts_twice() -> None:
    assert "are more than" in refusal("'" * (MAX_PAYLOAD_BYTES // 2 + 1))


def test_subclasses_are_stored_as_what_they_are() -> None:
    colour = enum.StrEnum("colour", {"RED": "red"})
    size = enum.IntEnum("size", {"BIG": 2})
    point = collections.namedtuple("point", "x y")

    prepared = prepare_arguments(PATH, (colour["RED"], size["BIG"], point(1, 2), {size["BIG"]: 1}), {})

    assert prepared.args == ["red", 2, [1, 2], {"2": 1}]
    assert [type(value) for value in prepared.args[:2]] == [str, int]


def test_a_mapping_that_shows_other_items_than_it_holds_is_stored_as_it_shows_itself() -> None:
    class Upper(dict[str, int]):
        def items(self) -> Any:
            return [(key.upper(), value) for key, value in super().items()]

    assert prepare_arguments(PATH, (Upper(a=1),), {}).args == [normalize(Upper(a=1))] == [{"A": 1}]


def test_a_sequence_whose_own_code_fails_is_refused_with_its_error_as_the_cause() -> None:
    class Moody(collections.UserList[int]):
        calls = 0

        def __iter__(self) -> Iterator[int]:
            self.calls += 1
            if self.calls > 1:
                raise ValueError("not again")
            return iter([1])

    with pytest.raises(InvalidArguments, match="can't be encoded as JSON: not again") as caught:
        prepare_arguments(PATH, (Moody(),), {})

    assert isinstance(caught.value.__cause__, ValueError)
