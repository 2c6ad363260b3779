"""Database URLs as far as they are alike on all engines. What is refused here never shows a part of a password."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from oxpull_async.exceptions import InvalidSettings

ESCAPES: Final = "in a user or a password write @ as %40, # as %23, / as %2F, ? as %3F, [ as %5B, ] as %5D"
_HIGHEST_PORT: Final = 65_535


def url_parts(url: str) -> SplitResult:
    """The URL, taken apart. Raises: InvalidSettings for one that can't be, without what Python says of it."""
    try:
        return urlsplit(url)
    except ValueError:  # whose words may be a password
        raise InvalidSettings(f"the database URL can't be read; {ESCAPES}") from None


def check_slashes(url: str, parts: SplitResult) -> None:
    """Raises: InvalidSettings where no // follows the scheme: what stands there would be read as something else."""
    if not url.lstrip()[len(parts.scheme) :].startswith("://"):
        raise InvalidSettings(
            f"in the database URL no // follows {parts.scheme}:, as in sqlite:///relative.db or "
            "postgresql://user@host/name"
        )


def check_server(parts: SplitResult) -> None:
    """Raises: InvalidSettings where a character of the password has ended the host's part of the URL too early."""
    if parts.fragment or "@" in parts.path:
        raise InvalidSettings(f"the database URL goes on behind what would be its database; {ESCAPES}")


def check_ports(parts: SplitResult) -> None:
    """Raises: InvalidSettings for an @ too many, and for a port that the system would count round from 0."""
    if parts.netloc.count("@") > 1:
        raise InvalidSettings(f"the database URL has an @ too many; {ESCAPES}")
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition(":")[2]
        if ":" in host and port.isdecimal() and int(port) > _HIGHEST_PORT:
            raise InvalidSettings(f"the port in the database URL is {port}, beyond the highest, {_HIGHEST_PORT}")
