"""The name under which a worker holds its leases."""

from __future__ import annotations

import os
import secrets
import socket
import string
from typing import Final

_ALPHABET: Final = string.ascii_letters + string.digits
_HOST_LENGTH: Final = 40
_SUFFIX_LENGTH: Final = 8


def new_worker_id() -> str:
    """``<host>-<pid>-<8 random characters>``, at most 64 characters; different at every call."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return f"{socket.gethostname()[:_HOST_LENGTH]}-{os.getpid()}-{suffix}"


class OwnName:
    """A name of one object's own, as a worker's id is made: the same at each call, and another in a forked process.

    A server may import the application, and make its objects, before it forks.
    """

    def __init__(self) -> None:
        self._process = 0
        self._name = ""

    def __call__(self) -> str:
        if self._process != (process := os.getpid()):
            self._process, self._name = process, new_worker_id()
        return self._name
