"""Functions in processes of their own, which can be killed: for work that keeps a CPU busy.

Only a path and JSON go there, and JSON or an exception comes back.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyio import BrokenWorkerProcess, CapacityLimiter, to_process

from oxpull_async.core.arguments import parse_arguments, prepare_result
from oxpull_async.exceptions import TaskProcessDied


class RemoteTraceback(Exception):
    """The traceback of an error that was raised in another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True, slots=True)
class _Raised:
    """``error`` is pickled; None where that can't be done, and then a stand-in tells of it."""

    error: bytes | None
    module: str
    qualname: str
    words: str
    traceback: str


async def run_in_process(
    function: Callable[..., Any], args_json: str, kwargs_json: str, limiter: CapacityLimiter
) -> str | None:
    """What the function returns, as JSON text. A cancel kills the process.

    Raises: what the function raises, with its traceback over there; TaskProcessDied.
    """
    where = function.__module__, function.__qualname__
    try:
        answer = await to_process.run_sync(
            _carry_out, *where, args_json, kwargs_json, cancellable=True, limiter=limiter
        )
    except BrokenWorkerProcess as error:
        raise TaskProcessDied(f"the process that ran {'.'.join(where)} has died") from error
    if isinstance(answer, _Raised):
        raise _rebuilt(answer) from RemoteTraceback(answer.traceback)
    return answer


def _rebuilt(raised: _Raised) -> BaseException:
    if raised.error is not None:
        with contextlib.suppress(Exception):
            error: BaseException = pickle.loads(raised.error)  # noqa: S301 - from a child of ours
            return error
    kind = type(raised.qualname, (Exception,), {"__module__": raised.module, "__qualname__": raised.qualname})
    stand_in: BaseException = kind(raised.words)
    return stand_in


# What follows runs in the other process.


def _carry_out(module: str, qualname: str, args_json: str, kwargs_json: str) -> str | _Raised | None:
    _settle_in()
    try:
        function = _function(module, qualname)
        args, kwargs = parse_arguments(args_json, kwargs_json)
        return prepare_result(function(*args, **kwargs))
    except BaseException as error:  # a SystemExit too is a failed attempt, and not the end of the process
        return _told(error)


def _settle_in() -> None:
    """Ctrl-C goes to the whole group; whether this process ends is the worker's decision. And logs are to be seen."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stderr.name == os.devnull:
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)


def _function(module: str, qualname: str) -> Callable[..., Any]:
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = getattr(found, "function", None) or found
    return function


def _told(error: BaseException) -> _Raised:
    pickled: bytes | None = None
    with contextlib.suppress(Exception):
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own, to see whether it can be read
    kind = type(error)
    try:
        words, trace = str(error), "".join(traceback.format_exception(error))
    except Exception:  # foreign code
        words = trace = f"a {kind.__qualname__} that can't tell of itself"
    return _Raised(pickled, kind.__module__, kind.__qualname__, words, trace)
