"""The user that servers run as. PostgreSQL refuses to run as root, MariaDB had better not."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlainUser:
    uid: int
    gid: int

    @property
    def is_somebody_else(self) -> bool:
        return self.uid != os.geteuid()

    @property
    def process_options(self) -> dict[str, Any]:
        """For `subprocess`: run it as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_somebody_else else {}

    def own(self, path: Path) -> None:
        if self.is_somebody_else:
            os.chown(path, self.uid, self.gid)


def plain_user() -> PlainUser:
    """Ourselves, unless we are root: then the system's `nobody`, who is in every passwd file."""
    if os.geteuid() != 0:
        return PlainUser(os.geteuid(), os.getegid())
    nobody = pwd.getpwnam("nobody")
    return PlainUser(nobody.pw_uid, nobody.pw_gid)


@contextlib.contextmanager
def servers_folder(name: str) -> Iterator[Path]:
    """A new folder that the plain user owns and can reach; it's gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"oxpull-{name}-", dir=_reachable_parent()))
    try:
        folder.chmod(0o755)
        plain_user().own(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable_parent() -> Path:
    """The temporary folder, unless root's lies under a folder that nobody else may enter."""
    choices = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    if not plain_user().is_somebody_else:
        return choices[0]
    return next(folder for folder in choices if _anyone_may_enter(folder))


def _anyone_may_enter(folder: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in (folder, *folder.parents))
