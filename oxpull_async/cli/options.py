"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from oxpull_async.cli.target import Target

Flag: TypeAlias = Annotated[bool, Parameter(negative=())]
Where: TypeAlias = Annotated[Target | None, Parameter(name="*")]
