"""A call has the same unique key on both sides, and the same stored arguments."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django.utils.json import normalize_json
from oxpull.unique import unique_key as their_key

from oxpull_async import InvalidArguments
from oxpull_async.core.arguments import prepare_arguments
from oxpull_async.core.keys import unique_key as our_key
from tests.scale import rounds

texts = st.text(st.characters(), max_size=12)
numbers = (
    st.integers() | st.integers(-(10**40), 10**40) | st.floats() | st.sampled_from([-0.0, 1e16, 1e-7, 5e-324, 1.8e308])
)
leaves = st.none() | st.booleans() | numbers | texts | st.binary(max_size=6)
keys = texts | st.integers() | st.booleans() | st.none() | st.floats()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=12,
)
names = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=20)
many = settings(
    max_examples=rounds(small=300, full=20_000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_thousands_of_random_calls_have_the_same_keys():
    chance = random.Random(20261130)
    for _ in range(5_000):
        backend, path, queue = (chance.choice(["default", "mail", "ä b"]) for _ in range(3))
        args = tuple(random_value(chance, 3) for _ in range(chance.randrange(4)))
        kwargs = {random_text(chance): random_value(chance, 3) for _ in range(chance.randrange(4))}

        call = (backend, path, queue, args, kwargs)

        assert our_key(*call) == their_key(*call), call


def random_value(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.4:
        return chance.choice(
            [None, True, False, chance.getrandbits(chance.choice([3, 40, 200])), -chance.getrandbits(16),
             chance.uniform(-1e3, 1e3), chance.uniform(-1, 1) * 10.0 ** chance.randrange(-320, 309), math.nan, math.inf,
             -0.0, random_text(chance), random_text(chance).encode()]
        )  # fmt: skip
    inner = [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if chance.random() < 0.5:
        return chance.choice([list, tuple])(inner)
    return {chance.choice([random_text(chance), chance.randrange(5), None, True, 1.5]): value for value in inner}


def random_text(chance: random.Random) -> str:
    alphabets = ["abcXYZ 019", "/<>&\"'\\\b\f\n\r\t\x01\x1f\x7f", "äßéе\u0301\uffff", "😀\U0001f468\u200d\U0010fffd"]
    return "".join(chance.choice(chance.choice(alphabets)) for _ in range(chance.randrange(8)))


@pytest.mark.timeout(600)
@many
@given(names, names, names, st.lists(values, max_size=4).map(tuple), st.dictionaries(texts, values, max_size=4))
def test_any_call_has_the_same_key_or_none(
    backend: str, path: str, queue: str, args: tuple[Any, ...], kwargs: dict[str, Any]
):
    theirs = outcome(lambda: their_key(backend, path, queue, args, kwargs))
    ours = outcome(lambda: our_key(backend, path, queue, args, kwargs))

    assert ours == theirs


@pytest.mark.timeout(600)
@many
@given(st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_what_we_store_is_what_they_store(args: list[Any], kwargs: dict[str, Any]):
    try:
        ours = prepare_arguments("a.task", args, kwargs)
    except InvalidArguments:
        assert outcome(lambda: json.dumps([normalize_json(args), normalize_json(kwargs)])) in REFUSALS or is_unfit(
            [args, kwargs]
        )
        return

    assert ours.args_json == json.dumps(normalize_json(args))
    assert ours.kwargs_json == json.dumps(normalize_json(kwargs))


REFUSALS = {"TypeError", "ValueError"}


def outcome(made: Any) -> str:
    try:
        return str(made())
    except (TypeError, ValueError) as error:
        return type(error).__name__


def is_unfit(value: Any) -> bool:
    """Whether some database would refuse it: NaN and infinities, NUL characters, halves of surrogate pairs."""
    match value:
        case dict():
            return any(is_unfit(key) or is_unfit(item) for key, item in value.items())
        case list() | tuple():
            return any(is_unfit(item) for item in value)
        case float():
            return not math.isfinite(value)
        case bytes():
            return b"\0" in value
        case str():
            return "\0" in value or any("\ud800" <= character <= "\udfff" for character in value)
        case _:
            return False
