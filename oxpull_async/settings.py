"""The settings of one ``Oxpull``: a frozen model, checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from oxpull_async.core.backoff import Backoff
from oxpull_async.core.durations import parse_period, seconds
from oxpull_async.core.limits import RateLimit, check_together
from oxpull_async.core.names import suggestion
from oxpull_async.core.schedules import find_zone
from oxpull_async.exceptions import InvalidSettings

_PREFIX = "OXPULL_"
_DURATIONS = (
    "lease", "unique_wait", "connect_timeout", "pool_timeout", "close_timeout", "statement_timeout",
    "prune_older_than", "prune_batches_older_than",
)  # fmt: skip


class Settings(BaseModel):
    """Everything that can be set. Durations are seconds, or a ``timedelta`` where they are given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    database: str | None = None
    """Where the tables live; None reads ``OXPULL_DATABASE_URL`` when the Oxpull is opened."""
    backend_name: str = Field(default="default", min_length=1, max_length=128)
    queues: tuple[str, ...] | None = None
    """Queue names that tasks may use; None accepts any."""
    max_attempts: int = Field(default=3, ge=1, le=32767)
    lease: float = Field(default=300.0, ge=1)
    backoff: Backoff = Backoff()
    unique_wait: float = Field(default=10.0, gt=0)
    """How long a unique enqueue in a transaction of our own waits for a competitor's open one."""
    unique_tasks: frozenset[str] = frozenset()
    """Task paths that are unique although their declaration doesn't say so."""
    rate_limits: tuple[RateLimit, ...] = ()
    """How often tasks may start, over all processes."""
    schedule_timezone: str = "UTC"
    """The zone of schedules that are stored as rows: Django's ``TIME_ZONE``, where Django made them."""
    reconciler: bool | Literal["external"] = True
    """Whether ``running()`` completes batches; ``"external"`` says that other processes do, False that none does."""
    prune_older_than: float | None = Field(default=None, ge=0)
    """From what age on workers delete settled rows; None for never."""
    prune_batches_older_than: float | None = Field(default=None, ge=0)
    """From what age on workers delete completed batches; None for never."""
    pool_size: int = Field(default=10, ge=1)
    connect_timeout: float = Field(default=5.0, gt=0)
    pool_timeout: float = Field(default=30.0, gt=0)
    """How long an operation waits for a free connection of the pool."""
    close_timeout: float = Field(default=5.0, gt=0)
    statement_timeout: float = Field(default=60.0, gt=0)
    """The longest that one statement of ours may take."""
    statement_cache: bool = True
    """False prepares no named statements: for PgBouncer in transaction mode."""
    notify: bool = True
    """Whether processes tell one another of new rows, where the engine can (PostgreSQL); else they poll."""
    synchronous: Literal["NORMAL", "FULL"] = "FULL"
    """SQLite's durability: FULL survives a power cut, NORMAL may lose the last commits then."""

    @field_validator(*_DURATIONS, mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        try:
            return None if value is None else seconds(value, "a duration")
        except TypeError as error:  # pydantic reports a ValueError as the setting's own
            raise ValueError(str(error)) from error

    @field_validator("rate_limits")
    @classmethod
    def _limits(cls, value: tuple[RateLimit, ...]) -> tuple[RateLimit, ...]:
        check_together(value)
        return value

    @field_validator("schedule_timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        find_zone(value)
        return value

    @field_validator("queues", "unique_tasks", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"must be a list of names, not the one string {value!r}")
        return value


def make_settings(given: Mapping[str, Any]) -> Settings:
    """The settings given by keyword; ``None`` stands for the default.

    Raises: InvalidSettings naming the setting and what is wrong with it.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except (ValidationError, TypeError) as error:
        raise InvalidSettings(_words(error)) from error


def settings_from_environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What ``OXPULL_…`` variables say: ``OXPULL_DATABASE_URL`` and one variable per setting.

    Lists are separated by commas.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, Any] = {}
    for name in Settings.model_fields:
        variable = _PREFIX + ("DATABASE_URL" if name == "database" else name.upper())
        if variable in environ and name not in ("backoff", "rate_limits"):
            found[name] = _parsed(name, environ[variable])
    return found


def _parsed(name: str, text: str) -> Any:
    if name in ("queues", "unique_tasks"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in _DURATIONS:
        return _period(text)
    if name in ("statement_cache", "notify", "reconciler") and text.lower() in ("1", "0", "true", "false", "yes", "no"):
        return text.lower() in ("1", "true", "yes")
    return text


def _period(text: str) -> timedelta | float | str:
    for parse in (float, parse_period):
        with suppress(ValueError):
            return parse(text)
    return text  # refused as the setting's value, by its name


def _words(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    parts = []
    for detail in error.errors(include_url=False):
        name = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            parts.append(f"there is no setting {name!r}{suggestion(name, Settings.model_fields)}")
        else:
            parts.append(
                f"setting {name}: {detail['msg'].removeprefix('Value error, ')} (given: {detail.get('input')!r})"
            )
    return "; ".join(parts)
