"""Views of a Django project: an account and the task that welcomes it commit together, or neither does."""

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.core.asgi import get_asgi_application
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.tasks import task

from oxpull_async.integrations.django import DjangoConnection, aatomic, from_django, with_lifespan

ox = from_django()


@task(queue_name="mail")
def send_welcome(user_id: int) -> str:
    """Run by Django's own workers; enqueued from both sides."""
    return f"welcome, number {user_id}"


async def sign_up(request: HttpRequest) -> JsonResponse:
    async with aatomic():
        user = await get_user_model().objects.acreate(username=request.GET["name"])
        result = await ox.bind(DjangoConnection()).enqueue_unique(send_welcome, user.pk)
    return JsonResponse({"task": str(result.id), "created": result.created})


def sign_up_in_sync_code(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        user = get_user_model().objects.create(username=request.GET["name"])
        result = async_to_sync(ox.bind(DjangoConnection()).enqueue_unique)(send_welcome, user.pk)
    return JsonResponse({"task": str(result.id), "created": result.created})


def sign_up_and_welcome_later(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        user = get_user_model().objects.create(username=request.GET["name"])
        DjangoConnection().on_commit(ox.enqueue_unique, send_welcome, user.pk)
    return JsonResponse({"user": user.pk})


# asgi.py
application = with_lifespan(get_asgi_application(), ox.lifespan)
