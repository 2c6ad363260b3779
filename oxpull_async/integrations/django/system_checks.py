"""Django's system checks: what a project has set up in a way that will disappoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning  # noqa: A004 - Django's names
from django.db import connections, router

from oxpull_async import Finding, InvalidSettings, Oxpull, OxpullError
from oxpull_async.integrations.django._address import database_url
from oxpull_async.integrations.django.project import project_oxpull
from oxpull_async.runtime.checkup import scheduled_uniques

# `manage.py migrate` asks the database too, and an error would keep it from making the tables that are missing.
_KINDS: Final = {"error": Warning, "warning": Warning, "info": Info}


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Without the database: the setting, a database of its own, unique tasks on schedules."""
    try:
        ox = project_oxpull()
    except InvalidSettings as error:
        return [Error(str(error), id="oxpull_async.E001")]
    return [*_split(ox), *map(_message, scheduled_uniques(ox))]


def check_database(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """With ``manage.py check --database default``: what ``ox.check()`` finds there."""
    if not databases:
        return []
    try:
        ox = project_oxpull()
        findings = async_to_sync(_findings)(ox)
    except InvalidSettings:
        return []  # told by check_settings
    except OxpullError as error:
        return [Warning(f"the Oxpull can't be opened: {error}", id="oxpull_async.W003")]
    return [_message(finding) for finding in findings if finding.name != "scheduled_unique"]


async def _findings(ox: Oxpull) -> list[Finding]:
    async with ox:  # nothing is to be at work meanwhile
        return await ox.check()


def _split(ox: Oxpull) -> list[CheckMessage]:
    """A bound enqueue needs the Oxpull's database and Django's to be one."""
    alias = _alias_of_tasks()
    try:
        theirs = database_url(alias, connections.settings[alias])
    except InvalidSettings as error:
        return [Warning(str(error), id="oxpull_async.W002")]
    if ox.settings.database in (None, theirs):
        return []
    return [
        Warning(
            f"the Oxpull has a database URL of its own, which isn't that of DATABASES[{alias!r}]",
            hint="If it leads to another database, `ox.bind(DjangoConnection())` will raise WrongDatabase. Make the "
            "Oxpull with from_django(), which takes the address from DATABASES.",
            id="oxpull_async.W001",
        )
    ]


def _alias_of_tasks() -> str:
    if "django_ox" not in settings.INSTALLED_APPS:
        return "default"
    from django_ox.models import OxTask  # noqa: PLC0415 - only where that app is installed

    return str(router.db_for_write(OxTask))


def _message(finding: Finding) -> CheckMessage:
    kind = _KINDS[finding.level]
    return kind(finding.message, hint=finding.hint, id=f"oxpull_async.{finding.name}")
