"""What a worker calls of a task: the function itself, or what stands around it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from oxpull_async._codec import Codec, encode_result
from oxpull_async.exceptions import InvalidTask, NotOpen

_LIBRARY = "uncalled_for"
_context: ContextVar[Any] = ContextVar("oxpull_async_task_context")


def current_context() -> Any:
    """The context of the task that runs here. Raises: NotOpen outside of a task that has dependencies."""
    try:
        return _context.get()
    except LookupError:
        raise NotOpen("no task with dependencies is running here, so there is no TaskContext") from None


class Entry:
    """One function as a worker calls it: with arguments as JSON has them, for a value that JSON can have."""

    def __init__(
        self, path: str, function: Callable[..., Any], *, takes_context: bool = False, pydantic: bool = False
    ) -> None:
        whole = inspect.signature(function)
        injected = _dependency_names(function)
        given = list(whole.parameters.values())[1 if takes_context else 0 :]
        self.signature: inspect.Signature = whole.replace(parameters=[p for p in given if p.name not in injected])
        """The parameters that a caller gives: without the context and dependencies."""
        self.wants_context: bool = takes_context or bool(injected)
        """Whether ``call`` takes the context first."""
        self.call: Callable[..., Any] = function
        self._path = path
        self._function = function
        if injected:
            self.call = _with_dependencies(function, whole, takes_context)
        if pydantic:
            self.call = self._with_codec(self.call, skip=1 if self.wants_context else 0)

    @cached_property
    def codec(self) -> Codec:
        """Of a task declared with ``pydantic=True``. Raises: InvalidTask for an annotation that can't serve."""
        return Codec(self._path, self._function, self.signature)

    def _with_codec(self, function: Callable[..., Any], *, skip: int) -> Callable[..., Any]:
        """Over decoded arguments, the value encoded; the first ``skip`` arguments pass as they are."""
        if inspect.iscoroutinefunction(function):

            async def awaited(*args: Any, **kwargs: Any) -> Any:
                decoded, by_name = self.codec.decode(args[skip:], kwargs)
                return encode_result(await function(*args[:skip], *decoded, **by_name))

            return awaited

        def called(*args: Any, **kwargs: Any) -> Any:
            decoded, by_name = self.codec.decode(args[skip:], kwargs)
            return encode_result(function(*args[:skip], *decoded, **by_name))

        return called


def check_dependencies(path: str, function: Callable[..., Any]) -> None:
    """Raises: InvalidTask for a plain function with dependencies, which only an event loop can resolve."""
    try:
        names = _dependency_names(function)
    except TypeError as error:
        raise InvalidTask(f"the dependencies of {path}: {error}") from error
    if names and not inspect.iscoroutinefunction(function):
        raise InvalidTask(f"{path} has dependencies, so it must be a coroutine function: `async def`")


def _dependency_names(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that are dependencies. Nobody has declared one where the library for it wasn't imported."""
    library = sys.modules.get(_LIBRARY)
    if library is None:
        return frozenset()
    try:
        return frozenset(library.get_dependency_parameters(function))
    except ValueError:  # a function of C that tells no signature
        return frozenset()


def _with_dependencies(
    function: Callable[..., Any], signature: inspect.Signature, takes_context: bool
) -> Callable[..., Any]:
    """The coroutine function with its dependencies resolved around each call; gets the context in any case."""
    library = sys.modules[_LIBRARY]

    async def resolved(context: Any, *args: Any, **kwargs: Any) -> Any:
        given = (context, *args) if takes_context else args
        token = _context.set(context)
        try:
            by_name = signature.bind_partial(*given, **kwargs).arguments
            async with library.resolved_dependencies(function, dict(by_name)) as found:
                for value in found.values():
                    if isinstance(value, library.FailedDependency):
                        raise value.error
                return await function(*given, **{**found, **kwargs})
        finally:
            _context.reset(token)

    return resolved
