"""Who asked for what: a file with a line of JSON for each request, without tokens.

Texts of a request are cut and written in ASCII, so a request can neither add a line nor control a terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from lostflops.core.errors import UsageError

_MOST_LETTERS: Final = 300
_DEEPEST: Final = 8
"""Values inside so many others are left out: a body may be as deep as Python's stack allows."""


class AuditLog:
    """A file to which lines are added. It is opened for each, so that it may be moved away at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._append(b"")
        except OSError as error:
            raise UsageError(f"the audit log {path} cannot be written: {error.strerror}") from None

    def record(self, entry: Mapping[str, Any]) -> None:
        """Add a line; raise `OSError` if that fails."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **_clip(entry)}, ensure_ascii=True)
        self._append(f"{line}\n".encode("ascii"))

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            if os.write(file, line) != len(line):
                raise OSError(0, "the disk is full")
        finally:
            os.close(file)


def find_address(client: tuple[str, int] | None, forwarded: str, *, is_proxied: bool) -> str:
    """Return the address of a client; behind a proxy what it says, which is last in its header.

    >>> find_address(("127.0.0.1", 1), "spoofed, 10.0.0.7", is_proxied=True)
    '10.0.0.7'
    >>> find_address(("127.0.0.1", 1), "10.0.0.7", is_proxied=False)
    '127.0.0.1'
    """
    last = forwarded.rpartition(",")[2].strip()
    if is_proxied and last:
        try:
            return str(ip_address(last))
        except ValueError:
            return "unknown"
    return client[0] if client else "unknown"


def _clip(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_LETTERS else f"{value[:_MOST_LETTERS]}..."
    if isinstance(value, Mapping | list) and depth == _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {_clip(name): _clip(one, depth + 1) for name, one in value.items()}
    return [_clip(one, depth + 1) for one in value] if isinstance(value, list) else value
