"""Arguments and results as JSON text, byte for byte as a Django process would write it.

``prepare_arguments`` is on the path of every enqueue: it trusts the standard library's encoder,
looks at the text for anything suspicious, and walks the value only then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json import JSONDecoder, JSONEncoder
from typing import Any, NamedTuple

from oxpull_async.core.storable import (
    MAX_INTEGER_DIGITS,
    MAX_NESTING,
    find_unstorable,
    text_complaint,
)
from oxpull_async.exceptions import InvalidArguments

# What json.dumps and json.loads come down to, without the way there.
_write = JSONEncoder().encode
_read = JSONDecoder().raw_decode

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024 - 64 * 1024
"""What fits into one packet of a MariaDB with its defaults, with room for the rest of the row."""


class PreparedArguments(NamedTuple):
    """Arguments as they will be stored, and as a reader of the row will get them.

    ``args`` and ``kwargs`` share nothing with what the caller passed, and are made anew each time.
    """

    args_json: str
    kwargs_json: str

    @property
    def args(self) -> list[Any]:
        args: list[Any] = _read(self.args_json)[0]
        return args

    @property
    def kwargs(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = _read(self.kwargs_json)[0]
        return kwargs


def prepare_arguments(task_path: str, args: Sequence[object], kwargs: Mapping[str, object]) -> PreparedArguments:
    """The arguments of one call, ready to be stored on any engine.

    Raises: InvalidArguments naming the argument, the place inside it, and what is wrong.
    """
    args_json = _plain_text(args) if args else "[]"
    kwargs_json = _plain_text(kwargs) if kwargs else "{}"
    if args_json is None or kwargs_json is None:
        args_json, kwargs_json = _encode_carefully(task_path, args, kwargs)
    if len(args_json) + len(kwargs_json) > MAX_PAYLOAD_BYTES // 2:
        _refuse_oversized(task_path, args_json, kwargs_json)
    return PreparedArguments(args_json, kwargs_json)


def parse_arguments(args_json: str, kwargs_json: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a row, for one attempt."""
    args: list[Any] = json.loads(args_json) if args_json != "[]" else []
    kwargs: dict[str, Any] = json.loads(kwargs_json) if kwargs_json != "{}" else {}
    return args, kwargs


def prepare_result(value: object) -> str | None:
    """A task's return value as JSON text; None, which is stored as NULL, for None.

    Raises: TypeError or ValueError naming the place inside the value and what is wrong.
    """
    if value is None:
        return None
    text = _plain_text(value)
    if text is None:
        if found := find_unstorable(value):
            message = f"return value{found.path}: {found.complaint}"
            raise TypeError(message) if found.wrong_type else ValueError(message)
        text = encode(value)
    if len(text) > MAX_PAYLOAD_BYTES // 4 and (size := _packet_bytes(text, in_document=True)) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"return value: {_oversized(size)}")
    return text


def encode(value: object) -> str:
    """The JSON text of a normalised value. Refuses only what ``normalize`` and ``json`` refuse."""
    return json.dumps(normalize(value))


def normalize(value: Any) -> Any:
    """The value in dicts, lists and JSON's scalars; UTF-8 bytes become text.

    Raises: TypeError for other types; ValueError for other bytes.
    """
    if isinstance(value, Mapping):
        return {normalize(key): normalize(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return _decode(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Sequence):
        return [normalize(item) for item in value]
    raise TypeError(f"Unsupported type: {type(value)}")


def refuse_unstorable(value: object, where: str, owner: str = "", levels: int = MAX_NESTING) -> None:
    """Raise unless every engine can store the value.

    ``where`` is what the message calls the value, ``owner`` what it's the value of.

    Raises: InvalidArguments, such as ``argument 2["a"][3] of app.tasks.send: …``.
    """
    if found := find_unstorable(value, levels):
        raise InvalidArguments(f"{where}{found.path}{owner and f' of {owner}'}: {found.complaint}")


def _plain_text(value: object) -> str | None:
    """The JSON text, or None where it takes a closer look to know whether it may be stored."""
    try:
        text = _write(value)
    except (TypeError, ValueError, RecursionError):
        return None
    return None if _is_suspicious(text, value) else text


def _is_suspicious(text: str, value: object) -> bool:
    return (
        "NaN" in text
        or "Infinity" in text
        or "\\u0000" in text
        or ("\\ud" in text and text_complaint(json.dumps(value, ensure_ascii=False)) is not None)
        or (text.count("[") + text.count("{") > MAX_NESTING and _is_nested_too_deep(text))
        or (len(text) > MAX_INTEGER_DIGITS and _may_have_long_integer(text))
    )


def _is_nested_too_deep(text: str) -> bool:
    try:
        level: list[Any] = [[json.loads(text)]]
    except RecursionError:
        return True
    for _ in range(MAX_NESTING + 1):
        containers = (item.values() if type(item) is dict else item for item in level)
        level = [item for items in containers for item in items if type(item) in _CONTAINERS]
        if not level:
            return False
    return True


_CONTAINERS = (dict, list)


def _may_have_long_integer(text: str) -> bool:
    """Looks at one character of thirty first: of a run of so many digits that meets ten of them in a row."""
    return _TEN_DIGITS.search(text[::30]) is not None and _LONG_INTEGER.search(text) is not None


_TEN_DIGITS = re.compile("[0-9]{10}")
_LONG_INTEGER = re.compile(f"[0-9]{{{MAX_INTEGER_DIGITS + 1}}}")


def _encode_carefully(task_path: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[str, str]:
    levels = MAX_NESTING - 1
    for number, value in enumerate(args, start=1):
        refuse_unstorable(value, f"argument {number}", task_path, levels)
    for name, value in kwargs.items():
        refuse_unstorable(name, f"the name of keyword argument {name!r}", task_path)
        refuse_unstorable(value, f"keyword argument {name!r}", task_path, levels)
    try:
        return encode(args), encode(kwargs)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"the arguments of {task_path} can't be encoded as JSON: {error}") from error


def _refuse_oversized(task_path: str, args_json: str, kwargs_json: str) -> None:
    size = _packet_bytes(args_json) + _packet_bytes(kwargs_json)
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidArguments(f"the arguments of {task_path}: {_oversized(size)}")


def _packet_bytes(text: str, *, in_document: bool = False) -> int:
    """The MySQL family's driver sends literals, in which each of these is escaped by one byte more.

    A result is sent as a text within a JSON document, where two of them are escaped already.
    """
    escaped = text.count('"') + text.count("\\")
    return len(text) + (3 if in_document else 1) * escaped + text.count("'")


def _oversized(size: int) -> str:
    return (
        f"{size:,} bytes of JSON (counted as they are sent) are more than {MAX_PAYLOAD_BYTES:,}; "
        "store the data elsewhere and pass a reference to it"
    )


def _decode(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"Unsupported value: {type(value)}") from None
