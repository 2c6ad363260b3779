"""The commands, a module each: see the app's ``apps.py``."""
