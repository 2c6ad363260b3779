"""What a server wouldn't take is refused before it's sent: it would hang up, and the caller's transaction be lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from oxpull_async.drivers._procedure import Procedure, Step, Values, changed
from oxpull_async.exceptions import StoreError

T = TypeVar("T")

_TOO_LARGE = 1153
_MARGIN = 4096
"""For the statement around the values."""


def fitting(procedure: Procedure[T], *, limit: int) -> Procedure[T]:
    """The same procedure; a step larger than so many bytes ends with a StoreError, as if the server had refused it."""

    def checked(step: Step) -> Step:
        rows: Iterable[Values] = [step.values] if step.many is None else step.many
        for values in rows:  # drivers send long ones one by one
            if (size := _size(values)) > limit - _MARGIN:
                raise StoreError(
                    f"a statement of more than {size:,} bytes is larger than the server's max_allowed_packet "
                    f"({limit:,} bytes); nothing was sent",
                    code=_TOO_LARGE,
                )
        return step

    return changed(procedure, checked)


def _size(values: Values) -> int:
    return sum(_escaped(value) for value in values.values())


def _escaped(value: Any) -> int:
    if not isinstance(value, str):
        return 0
    return len(value) + value.count("\\") + value.count("'") + value.count('"')
