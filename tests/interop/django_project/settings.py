"""Settings that take their database from ``INTEROP_DATABASE_URL``."""

from __future__ import annotations

import os
from typing import Any

from django_project.databases import database_settings

SECRET_KEY = "no secret: this project never serves a request"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["django_ox", "oxpull"]
DATABASES = {"default": database_settings(os.environ["INTEROP_DATABASE_URL"])}

# The reference refuses to create a batch unless some schedule runs its reconciler.
SCHEDULES: dict[str, dict[str, Any]] = {
    "oxpull-batch-reconcile": {"task": "oxpull.batches.reconcile", "cron": "* * * * *"},
}
TASKS = {
    "default": {
        "BACKEND": "oxpull.backend.OxpullBackend",
        "QUEUES": [],
        "OPTIONS": {"SCHEDULES": SCHEDULES},
    },
    "listed": {
        "BACKEND": "oxpull.backend.OxpullBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"MAX_ATTEMPTS": 7, "UNIQUE_TASKS": ["django_project.tasks.listed"]},
    },
    "plain": {"BACKEND": "django_ox.backend.OxBackend", "QUEUES": []},
    "immediate": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend", "QUEUES": []},
}
