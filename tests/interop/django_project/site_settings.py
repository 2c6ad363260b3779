"""The same project with an admin and views, for the process of the tests themselves."""

from __future__ import annotations

from typing import Any

from django_project.settings import *  # noqa: F403
from django_project.settings import INSTALLED_APPS as PLAIN_APPS

ROOT_URLCONF = "django_project.urls"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    *PLAIN_APPS,
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
