"""The checksum of a JSON document, in its last value."""

from __future__ import annotations

import re
from typing import Final

from isal import isal_zlib

UNSEALED: Final = "00000000"
_SEAL: Final = re.compile(rb'"seal": ?"([^"]{8})"\s*\}\s*\Z')


def seal(text: bytes) -> bytes:
    """Return a JSON document with its checksum in its last value, `seal`, which must be `UNSEALED` before."""
    found = _SEAL.search(text)
    assert found is not None, "the last value of a document is its seal"
    assert found[1] == UNSEALED.encode(), "a document is sealed once"
    return b"%b%08x%b" % (text[: found.start(1)], isal_zlib.crc32(text), text[found.end(1) :])


def is_seal_broken(text: bytes, stated: str) -> bool:
    """Return whether a document, which states a seal, differs from the one that was sealed.

    One without a seal may be of an older version.

    >>> sealed = seal(b'{"rank": 4, "seal": "00000000"}')
    >>> is_seal_broken(sealed, "09d57227"), is_seal_broken(sealed.replace(b"4", b"5", 1), "09d57227")
    (False, True)
    >>> is_seal_broken(b'{"rank": 4}', UNSEALED)
    False
    """
    found = _SEAL.search(text)
    if found is None:  # somebody wrote it again, with its values in another order
        return stated != UNSEALED
    unsealed = text[: found.start(1)] + UNSEALED.encode() + text[found.end(1) :]
    return found[1] != b"%08x" % isal_zlib.crc32(unsealed)
