"""The admin, and views that enqueue."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_project import views

urlpatterns = [
    path("health", views.health),
    path("admin/", admin.site.urls),
    path("async/<int:number>/<str:end>", views.in_an_async_view),
    path("sync/<int:number>/<str:end>", views.in_a_sync_view),
]
