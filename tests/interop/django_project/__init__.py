"""A Django project around the reference package, as small as it gets, for the tests of compatibility.

Put the folder that holds this package on ``PYTHONPATH``, set ``DJANGO_SETTINGS_MODULE`` to
``django_project.settings`` and ``INTEROP_DATABASE_URL`` to a database, then run a command of Django, or
``django.setup()``, in a process of its own. ``django_commands`` does just that.
"""
