"""The example of the page on Django projects does what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from tests.docs.pages import EXAMPLES

PROJECT = """
import asyncio, json
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_ox", "oxpull"],
    TASKS={"default": {"BACKEND": "oxpull.backend.OxpullBackend", "QUEUES": ["default", "mail"]}},
    USE_TZ=True, ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"],
)
django.setup()

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import IntegrityError
from django.test import AsyncClient
from django.urls import path
from django_accounts import ox, sign_up, sign_up_and_welcome_later, sign_up_in_sync_code

VIEWS = [sign_up, sign_up_in_sync_code, sign_up_and_welcome_later]
urlpatterns = [path(view.__name__, view) for view in VIEWS]
call_command("migrate", verbosity=0)

async def main():
    from django_ox.models import OxTask
    seen = []
    async with ox:
        for view in VIEWS:
            answer = await AsyncClient().get(f"/{view.__name__}", {"name": view.__name__})
            seen.append(answer.status_code)
            try:
                await AsyncClient().get(f"/{view.__name__}", {"name": view.__name__})
            except IntegrityError:
                seen.append("taken")
    rows = [row async for row in OxTask.objects.order_by("enqueued_at").values_list("task_path", "queue_name", "args")]
    print(json.dumps([seen, rows]))

asyncio.run(main())
"""


def test_the_accounts_and_their_tasks_commit_together(tmp_path: Path):
    path = os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", PROJECT], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    seen, rows = json.loads(done.stdout)
    assert seen == [200, "taken"] * 3
    assert rows == [["django_accounts.send_welcome", "mail", [number]] for number in (1, 2, 3)]
