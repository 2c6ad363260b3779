"""Views that enqueue through an Oxpull, which the test hands in, inside a transaction of Django's."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse

from django_project.tasks import unique_plain
from oxpull_async import Oxpull
from oxpull_async.integrations.django import DjangoConnection, aatomic

oxen: list[Oxpull] = []


class Undone(Exception):
    """Ends a transaction without a commit."""


async def in_an_async_view(request: HttpRequest, number: int, end: str) -> HttpResponse:
    try:
        async with aatomic():
            result = await oxen[0].bind(DjangoConnection()).enqueue(unique_plain, number)
            _end(end)
    except Undone:
        pass
    return HttpResponse(str(result.id))


def in_a_sync_view(request: HttpRequest, number: int, end: str) -> HttpResponse:
    try:
        with transaction.atomic():
            result = async_to_sync(oxen[0].bind(DjangoConnection()).enqueue)(unique_plain, number)
            _end(end)
    except Undone:
        pass
    return HttpResponse(str(result.id))


async def health(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"ok": oxen[0].is_open})


def _end(end: str) -> None:
    if end == "undo":
        raise Undone
