"""For Django projects: enqueue inside Django's own transactions, and take the settings from Django's.

Needs Django 5.2 or later; the tasks of ``django.tasks`` (6.0) can be enqueued
as they are, and need no part of this.
"""

from oxpull_async.integrations.django.asgi import with_lifespan
from oxpull_async.integrations.django.configuration import from_django
from oxpull_async.integrations.django.connection import DjangoConnection
from oxpull_async.integrations.django.transactions import aatomic

__all__ = ["DjangoConnection", "aatomic", "from_django", "with_lifespan"]
