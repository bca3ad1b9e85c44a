"""Paths as text: Linux allows any bytes in names; databases, JSON and pages need UTF-8."""

import os
from pathlib import Path

from lostflops.core.errors import UsageError


def utf8(path: Path) -> Path:
    """Return the path; raise a `UsageError` that says what to do if it is not UTF-8.

    >>> import os
    >>> utf8(Path("run")).name
    'run'
    >>> utf8(Path(os.fsdecode(b"caf\\xe9/run")))
    Traceback (most recent call last):
    lostflops.core.errors.UsageError: the path caf\\xe9/run is not UTF-8, so Lostflops cannot read or write there. \
Rename it, or use another folder.
    """
    named = os.fsencode(path)
    try:
        named.decode()
    except UnicodeDecodeError:
        shown = spell_path(path)
        reason = "is not UTF-8, so Lostflops cannot read or write there. Rename it, or use another folder"
        raise UsageError(f"the path {shown} {reason}.") from None
    return path


def spell_path(path: Path) -> str:
    r"""Return a path as text, with bytes that are not UTF-8 written out.

    >>> import os
    >>> print(spell_path(Path(os.fsdecode(b"caf\xe9"))))
    caf\xe9
    """
    return os.fsencode(path).decode(errors="backslashreplace")
