"""The Django app: ``INSTALLED_APPS = [..., "oxpull_async.integrations.django"]`` brings commands and system checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core import checks

from oxpull_async.integrations.django.system_checks import check_database, check_settings

if TYPE_CHECKING:

    class AppConfig:
        """Django's, which is untyped."""
else:
    from django.apps import AppConfig


class OxpullAsyncConfig(AppConfig):
    """``manage.py oxpull_async …``, ``manage.py oxpull_async_reconciler``, and what ``manage.py check`` tells.

    The setting ``OXPULL_ASYNC_APP`` says where the project's ``Oxpull`` is,
    such as ``"shop.queue:ox"``; without it, it's what ``from_django()`` makes.
    """

    name = "oxpull_async.integrations.django"
    label = "oxpull_async"
    verbose_name = "oxpull_async"

    def ready(self) -> None:
        """Called by Django."""
        checks.register(check_settings, "oxpull_async")
        checks.register(check_database, "oxpull_async", checks.Tags.database)
