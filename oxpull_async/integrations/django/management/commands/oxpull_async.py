"""``manage.py oxpull_async …``: the commands of ``oxpull-async``, for the project's ``Oxpull``."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oxpull_async.cli import run_for
from oxpull_async.integrations.django.project import project_oxpull

if TYPE_CHECKING:

    class BaseCommand:
        """Django's, which is untyped."""
else:
    from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Passes everything on, ``--help`` too."""

    help = "The task queue: the commands of oxpull-async, such as `worker`, `status` and `migrate`."
    requires_system_checks: Sequence[str] = []

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Called by Django."""
        run_for(project_oxpull(), argv[2:])

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Called by Django."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *arguments: str, **options: Any) -> None:
        """Called by ``call_command``."""
        run_for(project_oxpull(), options["arguments"])
