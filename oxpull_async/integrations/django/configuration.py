"""``from_django``: an Oxpull that a Django project's settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connections, router
from django.utils.module_loading import import_string

from oxpull_async import Backoff, Oxpull
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.integrations.django._address import database_url, options_of, vendor_of

_DEFAULT_QUEUES = ["default"]
_OPTIONS = {"MAX_ATTEMPTS": "max_attempts", "LOCK_TIMEOUT": "lease", "UNIQUE_TASKS": "unique_tasks"}


def from_django(using: str = "default", backend: str = "default", **overrides: Any) -> Oxpull:
    """An Oxpull on ``DATABASES[using]``, for the tasks of ``TASKS[backend]``; ``overrides`` are settings of Oxpull.

    From ``TASKS`` it takes ``QUEUES``, and of the ``OPTIONS`` of a django-ox
    backend ``MAX_ATTEMPTS``, ``LOCK_TIMEOUT``, ``BACKOFF_INITIAL``,
    ``BACKOFF_MAX`` and ``UNIQUE_TASKS``: what rows and keys depend on. What
    concerns Django's own workers stays theirs. Connects to nothing.

    Raises: InvalidSettings naming the setting that has no counterpart.
    """
    found: dict[str, Any] = {"backend_name": backend, **_from_tasks(backend)}
    if "database" not in overrides:
        found |= _from_databases(using)
    return Oxpull(**{**found, **overrides})


def _from_databases(using: str) -> dict[str, Any]:
    if using not in connections.settings:
        raise InvalidSettings(f"DATABASES has no {using!r}")
    entry = connections.settings[using]
    _refuse_other_times(using, entry)
    _refuse_other_route(using)
    return {"database": database_url(using, entry), **options_of(entry)}


def _refuse_other_times(using: str, entry: Mapping[str, Any]) -> None:
    """Rows hold instants in UTC; on PostgreSQL they do so whatever Django is told."""
    if vendor_of(entry) == "postgresql":
        return
    if not settings.USE_TZ:
        raise InvalidSettings("USE_TZ is off, so Django would write local times where rows hold UTC: set USE_TZ = True")
    if entry.get("TIME_ZONE") not in (None, "UTC"):
        raise InvalidSettings(
            f"DATABASES[{using!r}]['TIME_ZONE'] is {entry['TIME_ZONE']!r}, but rows hold UTC: leave it out"
        )


def _refuse_other_route(using: str) -> None:
    """Where Django writes its task rows has to be where ours go."""
    if not (apps.models_ready and apps.is_installed("django_ox")):
        return
    written_to = router.db_for_write(apps.get_model("django_ox", "OxTask"))
    if written_to != using:
        raise InvalidSettings(
            f"DATABASE_ROUTERS send the task table to {written_to!r}: use from_django(using={written_to!r})"
        )


def _from_tasks(backend: str) -> dict[str, Any]:
    tasks = getattr(settings, "TASKS", {})
    if backend not in tasks:
        if backend == "default":
            return {}
        raise InvalidSettings(f"TASKS has no backend {backend!r}")
    entry = tasks[backend]
    if not _keeps_rows(backend, entry):
        return {}
    options = entry.get("OPTIONS", {})
    found: dict[str, Any] = {"queues": list(entry.get("QUEUES", _DEFAULT_QUEUES)) or None}
    for theirs, ours in _OPTIONS.items():
        if theirs in options:
            found[ours] = _checked(backend, theirs, options[theirs])
    if "BACKOFF_INITIAL" in options or "BACKOFF_MAX" in options:
        found["backoff"] = _backoff(backend, options)
    return found


def _keeps_rows(backend: str, entry: Mapping[str, Any]) -> bool:
    """Whether it's a backend of django-ox: another one's entry says nothing of rows."""
    try:
        made = import_string(entry["BACKEND"])
    except (ImportError, KeyError) as error:
        raise InvalidSettings(f"TASKS[{backend!r}]['BACKEND'] can't be used: {error}") from error
    return hasattr(made, "max_attempts")


def _checked(backend: str, name: str, value: Any) -> Any:
    if name == "UNIQUE_TASKS" and not isinstance(value, list | tuple):
        raise InvalidSettings(f"{_where(backend, name)} must be a list of task paths, not {value!r}")
    if name != "UNIQUE_TASKS" and not _is_number(value, whole=name == "MAX_ATTEMPTS"):
        raise InvalidSettings(f"{_where(backend, name)} must be a number, not {value!r}")
    return value


def _backoff(backend: str, options: Mapping[str, Any]) -> Backoff:
    try:
        return Backoff(options.get("BACKOFF_INITIAL", 5.0), options.get("BACKOFF_MAX", 600.0))
    except (TypeError, ValueError) as error:
        raise InvalidSettings(f"{_where(backend, 'BACKOFF_INITIAL')} or BACKOFF_MAX: {error}") from error


def _is_number(value: object, *, whole: bool) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)


def _where(backend: str, name: str) -> str:
    return f"TASKS[{backend!r}]['OPTIONS']['{name}']"
