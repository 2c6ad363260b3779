"""The keys of unique tasks, against vectors made by running the Django side."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import hashlib
import json
import pathlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxpull_async.core.arguments import prepare_arguments
from oxpull_async.core.keys import own_key, unique_key, unique_key_of
from oxpull_async.exceptions import InvalidArguments

VECTORS: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parent / "unique_key_vectors.json").read_text(encoding="utf-8")
)
HASHED = [vector for vector in VECTORS if "sha256" in vector]
REFUSED = [vector for vector in VECTORS if "raises" in vector]
UNSTORABLE = {
    "NUL",
    "NaN",
    "inf",
    "-inf",
    "1e400 literal is inf",
    "lone high surrogate",
    "lone low surrogate",
    "10**4299 (4300 digits)",
}
STORABLE = [vector for vector in HASHED if vector["name"] not in UNSTORABLE and isinstance(vector["kwargs"], dict)]
MODULES = {
    "array": array,
    "collections": collections,
    "datetime": datetime,
    "decimal": decimal,
    "enum": enum,
    "uuid": uuid,
}
UTC = datetime.UTC

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
keys = st.text() | st.integers() | st.floats() | st.booleans() | st.none()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner),
    max_leaves=20,
)


def arguments(vector: dict[str, Any]) -> Any:
    return eval(vector["args_py"], dict(MODULES)) if "args_py" in vector else vector["args"]


def key_of(*args: object, **kwargs: object) -> str:
    return unique_key("default", "app.tasks.send", "default", args, kwargs)


def named(vectors: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


def test_all_vectors_are_here() -> None:
    assert (len(HASHED), len(REFUSED)) == (92, 12)


@named(HASHED)
def test_a_key_is_the_one_the_django_side_computes(vector: dict[str, Any]) -> None:
    key = unique_key(vector["backend"], vector["task_path"], vector["queue"], arguments(vector), vector["kwargs"])

    assert key == vector["sha256"]


@named([vector for vector in HASHED if "canonical_payload" in vector])
def test_a_key_is_the_digest_of_the_canonical_payload(vector: dict[str, Any]) -> None:
    assert hashlib.sha256(vector["canonical_payload"].encode()).hexdigest() == vector["sha256"]


@named(REFUSED)
def test_values_without_a_json_form_have_no_key(vector: dict[str, Any]) -> None:
    expected = {"TypeError": TypeError, "ValueError": ValueError}[vector["raises"]]

    with pytest.raises(expected) as caught:
        unique_key(vector["backend"], vector["task_path"], vector["queue"], arguments(vector), vector["kwargs"])

    assert type(caught.value) is expected
    assert vector["message"].split(";")[0] in str(caught.value)  # Python 3.14 says more around it


@named(STORABLE)
def test_a_vectors_key_follows_from_its_prepared_arguments_too(vector: dict[str, Any]) -> None:
    backend, task_path, queue = vector["backend"], vector["task_path"], vector["queue"]

    prepared = prepare_arguments(task_path, arguments(vector), vector["kwargs"])

    assert unique_key_of(backend, task_path, queue, prepared) == vector["sha256"]


@named([vector for vector in HASHED if vector["name"] in UNSTORABLE])
def test_a_vectors_value_that_has_a_key_may_be_refused_all_the_same(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        prepare_arguments(vector["task_path"], arguments(vector), vector["kwargs"])


@settings(deadline=None)
@given(st.lists(values), st.dictionaries(st.text(), values))
def test_a_key_of_prepared_arguments_is_the_key_of_the_values(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        prepared = prepare_arguments("app.tasks.send", args, kwargs)
    except InvalidArguments:
        return

    key = unique_key_of("default", "app.tasks.send", "q", prepared)

    assert key == unique_key("default", "app.tasks.send", "q", args, kwargs)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (((1, 2), {}), ((1,), {"b": 2}), False),
        (((1,), {}), ((1,), {"b": None}), False),
        ((("1",), {}), ((1,), {}), False),
        (((1,), {}), ((1.0,), {}), False),
        (((True,), {}), ((1,), {}), False),
        ((((1, 2),), {}), (([1, 2],), {}), True),
        ((({"a": 1, "b": {"c": 2, "d": 3}},), {}), (({"b": {"d": 3, "c": 2}, "a": 1},), {}), True),
        (((), {"a": 1, "b": 2}), ((), {"b": 2, "a": 1}), True),
        ((({1: "x"},), {}), (({"1": "x"},), {}), True),
        (((b"x",), {}), (("x",), {}), True),
    ],
    ids=[
        "positional and keyword differ",
        "omitted and explicit default differ",
        "text and number differ",
        "int and float differ",
        "bool and int differ",
        "tuple and list are the same",
        "order in dicts is irrelevant at every depth",
        "order of keywords is irrelevant",
        "int and text keys are the same",
        "bytes and text are the same",
    ],
)
def test_what_counts_as_the_same_call(one: Any, other: Any, same: bool) -> None:
    assert (key_of(*one[0], **one[1]) == key_of(*other[0], **other[1])) is same


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\0b", "\ud800"], ids=repr)
def test_values_that_no_database_stores_have_a_key_all_the_same(value: object) -> None:
    assert len(key_of(value)) == 64


def test_our_own_keys_are_apart_from_the_shared_ones_and_from_each_other() -> None:
    found = {
        own_key("default", "app.tasks.send", "q", "by", [1]),
        own_key("default", "app.tasks.send", "q", "window", [1]),
        own_key("default", "app.tasks.send", "q", "by", [2]),
        own_key("default", "app.tasks.send", "other", "by", [1]),
        own_key("other", "app.tasks.send", "q", "by", [1]),
        unique_key("default", "app.tasks.send", "q", [1], {}),
    }

    assert len(found) == 6


def test_our_own_keys_normalise_their_value_and_never_change() -> None:
    payload = '["oxpull_async/unique/1","default","app.tasks.send","q","by",{"1":[2],"a":"x"}]'

    key = own_key("default", "app.tasks.send", "q", "by", {"a": b"x", 1: (2,)})

    assert key == hashlib.sha256(payload.encode()).hexdigest()
