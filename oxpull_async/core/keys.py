"""The keys of unique tasks: a digest of what makes two calls the same call.

Pure and positional, without binding a signature: ``f(1)`` and ``f(a=1)`` differ. A key is computed
from the values *before* they are stored, so values that no database takes have a key all the same.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from json import JSONEncoder

from oxpull_async.core.arguments import PreparedArguments, normalize

_OWN_NAMESPACE = "oxpull_async/unique/1"

_canonical = JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def unique_key(backend: str, task_path: str, queue: str, args: object, kwargs: object) -> str:
    """The key under which this call is unique, the same as the Django side computes: 64 hex digits.

    Raises: TypeError or ValueError for values that have no JSON form. NaN, NUL and surrogates have one here.
    """
    return _digest([backend, task_path, queue, normalize(args), normalize(kwargs)])


def unique_key_of(backend: str, task_path: str, queue: str, prepared: PreparedArguments) -> str:
    """``unique_key`` of arguments that are prepared, and not changed since: the quickest way to it."""
    args, kwargs = _compact(prepared.args_json), _compact(prepared.kwargs_json)
    return _hash(f"{_opening(backend, task_path, queue)}{args},{kwargs}]")


def own_key(backend: str, task_path: str, queue: str, scope_name: str, value: object) -> str:
    """The key for a notion of sameness that the Django side doesn't know, in a namespace apart from it.

    ``scope_name`` says which notion, ``value`` (any JSON value) what must be the same.
    """
    return _digest([_OWN_NAMESPACE, backend, task_path, queue, scope_name, normalize(value)])


@lru_cache(maxsize=1024)
def _opening(backend: str, task_path: str, queue: str) -> str:
    """The part of a key's text that all calls of a task share."""
    return _canonical([backend, task_path, queue])[:-1] + ","


def _compact(text: str) -> str:
    """The canonical text of a value whose JSON text is at hand: the same where that has no separator to shorten,
    for then it has no keys to sort either.
    """
    return text if ", " not in text and ": " not in text else _canonical(json.loads(text))


def _digest(parts: list[object]) -> str:
    # The round trip coerces keys to text (last one wins), so that sorting them can't meet mixed types.
    return _hash(_canonical(json.loads(json.dumps(parts))))


def _hash(payload: str) -> str:
    return sha256(payload.encode("ascii")).hexdigest()
