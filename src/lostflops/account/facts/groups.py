"""Ranks in the id of a process group: `0@0-3` is the group called 0 with the ranks 0 to 3."""

from __future__ import annotations

import re
from typing import Final

from lostflops.core.limits import LARGEST_WORLD

_MEMBERS: Final = re.compile(r"@(\d+)-(\d+)(?:/(\d+))?$|@(\d+(?:,\d+)+)$")


def members(group: str) -> tuple[int, ...]:
    """Return the ranks of a group, as far as its id lists them.

    >>> members("0@0-3"), members("12@1-7/2"), members("3@0,1,5"), members("unknown group")
    ((0, 1, 2, 3), (1, 3, 5, 7), (0, 1, 5), ())
    """
    found = _MEMBERS.search(group)
    if found is None:
        return ()
    first, last, stride, listed = found.groups()
    if listed:
        return tuple(map(int, listed.split(",")))
    if int(last) >= LARGEST_WORLD or not int(stride or 1):
        return ()
    return tuple(range(int(first), int(last) + 1, int(stride or 1)))
