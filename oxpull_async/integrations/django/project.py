"""The ``Oxpull`` of a Django project, by its settings."""

from __future__ import annotations

from django.conf import settings
from django.utils.module_loading import import_string

from oxpull_async import InvalidSettings, Oxpull
from oxpull_async.integrations.django.configuration import from_django

SETTING = "OXPULL_ASYNC_APP"


def project_oxpull() -> Oxpull:
    """What ``OXPULL_ASYNC_APP`` names; without it, ``from_django()``. Raises: InvalidSettings."""
    reference = getattr(settings, SETTING, None)
    if reference is None:
        return from_django()
    try:
        found = import_string(str(reference).replace(":", "."))
    except ImportError as error:
        raise InvalidSettings(f"{SETTING} is {reference!r}, which can't be imported: {error}") from error
    if not isinstance(found, Oxpull):
        raise InvalidSettings(f"{SETTING} is {reference!r}, which is a {type(found).__name__} and not an Oxpull")
    return found
