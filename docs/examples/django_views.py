"""An async Django view: the new account and its welcome mail in one transaction.

In the project's asgi.py: application = with_lifespan(get_asgi_application(), ox.lifespan)
"""

from django.contrib.auth import get_user_model
from django.http import HttpRequest, JsonResponse

from oxpull_async.integrations.django import DjangoConnection, aatomic, from_django

ox = from_django()  # DATABASES["default"], and what TASKS["default"] says


@ox.task(unique=True)
async def send_welcome(user_id: int) -> str:
    return f"welcome, number {user_id}"


async def sign_up(request: HttpRequest) -> JsonResponse:
    async with aatomic():
        user = await get_user_model().objects.acreate(username=request.GET["name"])
        result = await ox.bind(DjangoConnection()).enqueue(send_welcome, user.pk)
        if user.username == "nobody":
            raise ValueError("no such name")  # undoes account, task and lock
    return JsonResponse({"user": user.pk, "task": str(result.id), "created": result.created}, status=201)
