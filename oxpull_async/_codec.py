"""Arguments of tasks declared with ``pydantic=True``: to JSON when they're enqueued, and back when they run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Container, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from oxpull_async.exceptions import InvalidArguments, InvalidTask

T = TypeVar("T")

_SEVERAL = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


class Codec:
    """Knows the parameters of one task by their annotations. Made once, at its first use.

    Raises: InvalidTask for an annotation that pydantic can't use.
    """

    def __init__(self, path: str, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self._path = path
        hints = _hints(path, function, signature.parameters)
        self._adapters = {name: _adapter(path, name, hints.get(name, Any)) for name in signature.parameters}
        parameters = signature.parameters.values()
        self._positional = [p.name for p in parameters if p.kind not in (p.KEYWORD_ONLY, *_SEVERAL)]
        self._rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._keywords = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, which fit the signature, as JSON has them. Raises: InvalidArguments naming the parameter."""
        return (
            [self._encoded(name, value) for name, value in zip(self._names(len(args)), args, strict=True)],
            {name: self._encoded(name, value) for name, value in kwargs.items()},
        )

    def decode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """What ``encode`` has made, as the annotations say. Raises: InvalidArguments naming the parameter."""
        return (
            [self._decoded(name, value) for name, value in zip(self._names(len(args)), args, strict=True)],
            {name: self._decoded(name, value) for name, value in kwargs.items()},
        )

    def _names(self, count: int) -> list[str]:
        names = self._positional[:count]
        return names + [self._rest or ""] * (count - len(names))

    def _encoded(self, name: str, value: Any) -> Any:
        adapter = self._adapter_of(name)
        try:
            valid = adapter.validate_python(value)
            return adapter.dump_python(valid, mode="json", by_alias=True, round_trip=True, warnings=False)
        except (ValidationError, PydanticSerializationError) as error:
            raise InvalidArguments(f"argument {name!r} of {self._path}: {_words(error)}") from error

    def _decoded(self, name: str, value: Any) -> Any:
        try:
            # As JSON, for a strict model takes a date's text from JSON alone.
            return self._adapter_of(name).validate_json(json.dumps(value))
        except ValidationError as error:
            raise InvalidArguments(f"argument {name!r} of {self._path}, as it is stored: {_words(error)}") from error

    def _adapter_of(self, name: str) -> TypeAdapter[Any]:
        found = self._adapters.get(name) or self._adapters.get(self._keywords or "")
        if found is None:  # a row of another version of this task
            raise InvalidArguments(f"{self._path} has no parameter for argument {name!r}")
        return found


def encode_untyped(path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a task whose annotations aren't here, each by its own type. Raises: InvalidArguments."""
    try:
        return [to_jsonable_python(value) for value in args], {
            name: to_jsonable_python(value) for name, value in kwargs.items()
        }
    except PydanticSerializationError as error:
        raise InvalidArguments(f"the arguments of {path}: {error}") from error


def encode_result(value: Any) -> Any:
    """A return value as JSON has it. Raises: ValueError for a type that pydantic doesn't know."""
    return to_jsonable_python(value)


def _hints(path: str, function: Callable[..., Any], names: Container[str]) -> dict[str, Any]:
    """Of these parameters alone: names that others need may be there for type checkers only."""
    try:
        annotations = {name: hint for name, hint in inspect.get_annotations(function).items() if name in names}
        holder = SimpleNamespace(__annotations__=annotations)
        return get_type_hints(holder, globalns=getattr(function, "__globals__", {}), include_extras=True)
    except NameError as error:
        raise InvalidTask(
            f"the annotations of {path} can't be read where pydantic needs them: {error}. Import the name at the "
            "module's top, and not under TYPE_CHECKING"
        ) from error


def _adapter(path: str, name: str, hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InvalidTask(f"parameter {name!r} of {path}: pydantic can't use its type: {error}") from error


def _words(error: ValidationError | PydanticSerializationError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    parts = []
    for detail in error.errors(include_url=False, include_context=False):
        place = "".join(f"[{part!r}]" for part in detail["loc"])
        parts.append(f"{place + ': ' if place else ''}{detail['msg']} (given: {_shown(detail.get('input'))})")
    return "; ".join(parts)


def _shown(value: Any, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
