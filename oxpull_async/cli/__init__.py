"""The command line: ``oxpull-async``, or ``python -m oxpull_async``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from oxpull_async.app import Oxpull
from oxpull_async.cli.target import UsageError, hosted
from oxpull_async.exceptions import InvalidSettings, OxpullError

_PARTS = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0, or 1 for an error of the library, or 2 for one of the call."""
    try:
        code = _commands().app(sys.argv[1:] if arguments is None else arguments, result_action="return_value")
    except (UsageError, InvalidSettings) as error:
        _fail(error, 2)
    except OxpullError as error:
        _fail(error, 1)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def run_for(ox: Oxpull, arguments: Sequence[str]) -> NoReturn:
    """As ``main``, for a command line of a framework's own, which knows the Oxpull already."""
    with hosted(ox):
        main(arguments)


def _commands() -> Any:
    try:
        return import_module("oxpull_async.cli.commands")
    except ModuleNotFoundError as error:
        if error.name not in _PARTS:
            raise
        raise UsageError("the command line needs more packages: pip install 'oxpull_async[cli]'") from error


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"oxpull-async: {error}", file=sys.stderr)
    sys.exit(code)
